{{- /* One page about the kind that --template-value kind=NAME names. */ -}}
{{- define "gvList" -}}
{{- $gv := first . -}}
{{- $kind := $gv.TypeForKind (markdownTemplateValue "kind") -}}
{{- $resource := first (index $kind.Markers "kubebuilder:resource") -}}
<!-- Generated from the Go types by `make generate`: change those. -->
# {{ $kind.Name }}

{{ template "line" $kind.Doc }}

| | |
|---|---|
| apiVersion | `{{ $gv.GroupVersionString }}` |
| resource | `{{ $resource.Path | default (regexReplaceAll "ys$" (printf "%ss" (lower $kind.Name)) "ies") }}.{{ $gv.Group }}` |
| scope | {{ $resource.Scope | default "Namespaced" }} |
{{- with $resource.ShortName }}
| short name | `{{ join "`, `" . }}` |
{{- end }}
{{- with $resource.Categories }}
| categories | `{{ join "`, `" . }}` |
{{- end }}
| columns | {{ range $i, $c := index $kind.Markers "kubebuilder:printcolumn" }}{{ if $i }}, {{ end }}{{ $c.Name }}{{ if $c.Priority }} (with `-o wide`){{ end }}{{ end }} |

[Conditions and reasons](conditions.md) have a page of their own.
{{- range $kind.Members }}{{ if ne .Name "metadata" }}

## {{ .Name }}

{{ template "line" .Doc }}
{{ template "rules" .Markers }}
{{- template "fields" (dict "path" .Name "type" .Type) }}
{{- end }}{{ end }}
{{ end }}

{{- define "fields" -}}
{{- $path := .path -}}
{{- range .type.Members }}

### {{ $path }}.{{ .Name }}

{{ template "line" .Doc }}

- {{ with index .Markers "kubebuilder:validation:Type" }}{{ first . }}{{ else }}{{ template "kind" .Type }}{{ end }}; {{ if has "Required: {}" .Validation }}**required**{{ else }}optional{{ end -}}
{{- with index .Markers "kubebuilder:default" }}; default `{{ (first .).Value | toJson }}`{{ end -}}
{{- range .Validation }}{{ if not (regexMatch "^(Required|Optional|Type):" .) }}; {{ . }}{{ end }}{{ end -}}
{{- range $i, $key := index .Markers "listMapKey" }}{{ if $i }} and {{ else }}; one item per {{ end }}{{ $key }}{{ end }}
{{- template "rules" .Markers }}
{{- template "inside" (dict "path" (print $path "." .Name) "type" .Type) }}
{{- end }}
{{- end }}

{{- /* What a type holds, through pointers, lists and maps: named values and fields. Types of Kubernetes are linked instead. */ -}}
{{- define "inside" -}}
{{- $kind := .type.Kind | toJson -}}
{{- if eq $kind `"POINTER"` }}{{ template "inside" (dict "path" .path "type" .type.UnderlyingType) }}
{{- else if eq $kind `"SLICE"` }}{{ template "inside" (dict "path" (print .path "[]") "type" .type.UnderlyingType) }}
{{- else if eq $kind `"MAP"` }}{{ template "inside" (dict "path" (print .path "{}") "type" .type.ValueType) }}
{{- else if hasPrefix "toolcall.dev/" .type.Package }}
{{- with .type.EnumValues }}

| value | meaning |
|---|---|
{{- range . }}
| `{{ .Name }}` | {{ template "line" (regexReplaceAll "^\\w+ (is )?" .Doc "" | replace "|" "\\|") }} |
{{- end }}
{{- end }}
{{- if eq $kind `"STRUCT"` }}{{ template "fields" . }}{{ end }}
{{- end }}
{{- end }}

{{- define "kind" -}}
{{- $kind := .Kind | toJson -}}
{{- if eq $kind `"POINTER"` }}{{ template "kind" .UnderlyingType }}
{{- else if eq $kind `"SLICE"` }}list of {{ template "kind" .UnderlyingType }}
{{- else if eq $kind `"MAP"` }}map of {{ template "kind" .ValueType }}{{ with .ValueType.Validation }} (each {{ join ", " . }}){{ end }}
{{- else if eq $kind `"ALIAS"` }}{{ template "kind" .UnderlyingType }}
{{- else if eq $kind `"BASIC"` }}{{ regexReplaceAll "^int" (markdownRenderType .) "int" }}{{ if hasPrefix "int" .Name }} ({{ .Name }}){{ end }}
{{- else if hasPrefix "toolcall.dev/" .Package }}object
{{- else }}{{ markdownRenderTypeLink . }}
{{- end }}
{{- end }}

{{- define "rules" -}}
{{- range index . "kubebuilder:validation:XValidation" }}
- rule: “{{ .Message }}”{{ if lt (len .Rule) 120 }} (`{{ .Rule }}`){{ end }}
{{- end }}
{{- end }}

{{- define "line" }}{{ . | trim | replace "\n" " " }}{{ end }}
