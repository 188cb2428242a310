{{/* The names are fixed: the operator is cluster-wide, one to a cluster, and looks for its Service, its Secret and
its admission policies by name. */}}
{{- define "toolcall.name" -}}toolcall-operator{{- end }}

{{/* What selects the operator's pods. Selectors can't be changed: these labels stay as they are. */}}
{{- define "toolcall.selector" -}}
app.kubernetes.io/name: {{ include "toolcall.name" . }}
{{- end }}

{{/* What every object has of the release. */}}
{{- define "toolcall.releaseLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "toolcall.labels" -}}
{{ include "toolcall.selector" . }}
{{ include "toolcall.releaseLabels" . }}
{{- end }}

{{- define "toolcall.account" -}}
{{ .Values.serviceAccount.name | default (include "toolcall.name" .) }}
{{- end }}

{{/* Adds the release's labels to an object of a file of config/. */}}
{{- define "toolcall.label" -}}
{{- $metadata := (index . 0).metadata -}}
{{- $_ := set $metadata "labels" (merge (include "toolcall.releaseLabels" (index . 1) | fromYaml) ($metadata.labels | default dict)) -}}
{{- end }}

{{/* Places a pod of a file of config/ as its values say. */}}
{{- define "toolcall.place" -}}
{{- $pod := index . 0 -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" -}}
{{- with index (index $ 1) $key -}}{{- $_ := set $pod $key . -}}{{- end -}}
{{- end -}}
{{- end }}

{{/* An image's full name, from the image's values and the chart. */}}
{{- define "toolcall.image" -}}
{{- $image := index . 0 -}}
{{- $chart := index . 1 -}}
{{- $image.repository -}}
{{- if or $image.tag (not $image.digest) }}:{{ $image.tag | default $chart.AppVersion }}{{ end -}}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end }}

{{/* The objects of a file of config/, in the release's namespace where they had the default one. With a list of namespaces,
the rights on what is in namespaces become a Role and a RoleBinding in each of these. */}}
{{- define "toolcall.objects" -}}
{{- $text := index . 0 -}}
{{- $root := index . 1 -}}
{{- $keep := index . 2 -}}
{{- $namespaces := index . 3 -}}
{{- $namespace := $root.Release.Namespace -}}
{{- range regexSplit "(?m)^---\\s*$" $text -1 }}
{{- $object := fromYaml . }}
{{- if $object.kind }}
{{- with $object.metadata.namespace }}{{ $_ := set $object.metadata "namespace" $namespace }}{{ end }}
{{- range $object.subjects }}
{{- if eq .kind "ServiceAccount" }}{{ $_ := set . "namespace" $namespace }}{{ $_ := set . "name" (include "toolcall.account" $root) }}{{ end }}
{{- end }}
{{- include "toolcall.label" (list $object $root) }}
{{- if $keep }}
{{- $annotations := merge (dict "helm.sh/resource-policy" "keep") ($object.metadata.annotations | default dict) }}
{{- $_ := set $object.metadata "annotations" $annotations }}
{{- end }}
{{- if and $namespaces (eq $object.metadata.name (printf "%s-namespaced" (include "toolcall.name" $))) }}
{{- $_ := set $object "kind" (trimPrefix "Cluster" $object.kind) }}
{{- with $object.roleRef }}{{ $_ := set . "kind" "Role" }}{{ end }}
{{- range $namespaces }}
{{- $_ := set $object.metadata "namespace" . }}
---
{{ toYaml $object }}
{{- end }}
{{- else }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether the chart installs an output store. */}}
{{- define "toolcall.installsStore" -}}
{{- if and .Values.store.enabled (not .Values.outputStore.location) }}true{{ end -}}
{{- end }}

{{/* The output store's location; empty for none. */}}
{{- define "toolcall.outputStore" -}}
{{- if include "toolcall.installsStore" . -}}
s3://toolcall?endpoint=http://toolcall-store.{{ .Release.Namespace }}.svc:9000
{{- else -}}
{{ .Values.outputStore.location }}
{{- end -}}
{{- end }}
