package main

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// writer puts a page together. The first error is kept, and ends it.
type writer struct {
	strings.Builder
	source *source
	err    error
}

func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(w, format+"\n", args...)
}

func (w *writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// page is the text about one kind.
func page(s *source, d *definition) (string, error) {
	w := &writer{source: s}
	v := d.Spec.Versions[0]
	kind := d.Spec.Names.Kind
	w.line("<!-- Generated from the Go types by `make generate`: change those. -->")
	w.line("# %s\n", kind)
	w.line("%s\n", oneLine(v.Schema.OpenAPI.Description))
	w.facts(d, v)
	w.rules(v.Schema.OpenAPI.Rules)
	for _, m := range s.structs[kind] {
		if m.json == "spec" || m.json == "status" {
			part := v.Schema.OpenAPI.Properties[m.json]
			w.line("\n## %s\n", m.json)
			w.line("%s\n", sentence(part.Description, m.json))
			w.rules(part.Rules)
			w.fields(m.json, own(m.kind), &part)
		}
	}
	w.groups(kind)
	return w.String(), w.err
}

func (w *writer) facts(d *definition, v version) {
	names := d.Spec.Names
	w.line("| | |\n|---|---|")
	w.line("| apiVersion | `%s/%s` |", d.Spec.Group, v.Name)
	w.line("| resource | `%s.%s` |", names.Plural, d.Spec.Group)
	w.line("| scope | %s |", map[string]string{"Namespaced": "namespace", "Cluster": "cluster"}[d.Spec.Scope])
	if len(names.ShortNames) > 0 {
		w.line("| short name | `%s` |", strings.Join(names.ShortNames, "`, `"))
	}
	if len(names.Categories) > 0 {
		w.line("| listed by | `kubectl get %s` |", strings.Join(names.Categories, "`, `kubectl get "))
	}
	var columns []string
	for _, c := range v.Columns {
		name := c.Name
		if c.Priority > 0 {
			name += " (with `-o wide`)"
		}
		columns = append(columns, name)
	}
	w.line("| columns | %s |", strings.Join(columns, ", "))
}

// fields writes those of a struct and of all that they hold.
func (w *writer) fields(path, structure string, s *schema) {
	members, ok := w.source.structs[structure]
	if !ok {
		w.fail("%s: the Go package has no struct %q", path, structure)
		return
	}
	known := map[string]bool{}
	for _, m := range members {
		known[m.json] = true
		property, ok := s.Properties[m.json]
		if !ok {
			w.fail("%s: %s has a field %q that the schema lacks: run controller-gen", path, structure, m.json)
			return
		}
		w.field(path+"."+m.json, m, &property, slices.Contains(s.Required, m.json))
	}
	for name := range s.Properties {
		if !known[name] {
			w.fail("%s: the schema has a field %q that %s lacks: run controller-gen", path, name, structure)
		}
	}
}

func (w *writer) field(path string, m member, s *schema, required bool) {
	w.line("\n### %s\n", path)
	w.line("%s\n", oneLine(s.Description))
	kind, suffix := element(m.kind)
	if alias, ok := w.source.named[own(kind)]; ok {
		if inner, more := element(alias); more != "" {
			kind, suffix = inner, suffix+more
		}
	}
	inner, err := s.inner(suffix)
	if err != nil {
		w.fail("%s: %w", path, err)
		return
	}
	w.summary(s, inner, suffix, required)
	w.rules(s.Rules)
	if inner != s {
		w.rules(inner.Rules)
	}
	w.inside(path+suffix, kind, inner)
}

// inside writes what a field holds: named values, fields of our own, or a word about where a type comes from.
func (w *writer) inside(path string, kind ast.Expr, s *schema) {
	if name := foreign(kind); name != "" {
		if origin := origins[strings.SplitN(name, ".", 2)[0]]; origin != "" && s.Type == "object" {
			w.line("\n"+origin, strings.SplitN(name, ".", 2)[1])
		}
		return
	}
	if values := w.source.values[own(kind)]; len(values) > 0 {
		w.line("")
		w.table("value", values)
		return
	}
	if _, ok := w.source.structs[own(kind)]; ok {
		w.fields(path, own(kind), s)
	}
}

// origins say where types of other packages are described.
var origins = map[string]string{
	"corev1": "Its fields are those of Kubernetes' own `%s` (core/v1), with their meaning in a Pod; `kubectl explain` lists them.",
	"metav1": "Its fields are those of Kubernetes' own `%s` (meta/v1).",
}

func (w *writer) summary(s, inner *schema, suffix string, required bool) {
	parts := []string{s.typeName(), map[bool]string{true: "**required**", false: "optional"}[required]}
	if s.Default != nil {
		parts = append(parts, "default `"+string(s.Default)+"`")
	}
	parts = append(parts, s.bounds()...)
	if suffix != "" {
		for _, b := range inner.bounds() {
			parts = append(parts, "each "+b)
		}
	}
	w.line("- %s", strings.Join(parts, "; "))
}

// longRule is where a rule's expression says less to a reader than its message alone.
const longRule = 120

// rules writes the messages that a client gets, with the expression where that is short.
func (w *writer) rules(rules []rule) {
	for _, r := range rules {
		if len(r.Rule) > longRule {
			w.line("- rule: “%s”", r.Message)
			continue
		}
		w.line("- rule: “%s” (`%s`)", r.Message, r.Rule)
	}
}

func (w *writer) table(head string, values []value) {
	w.line("| %s | meaning |\n|---|---|", head)
	for _, v := range values {
		if v.meaning == "" {
			w.fail("the constant with the value %q has no comment: say what it means", v.text)
		}
		w.line("| `%s` | %s |", v.text, strings.ReplaceAll(v.meaning, "|", `\|`))
	}
}

// groups writes the conditions and reasons whose comment names the kind.
func (w *writer) groups(kind string) {
	for _, g := range w.source.groups {
		words := strings.FieldsFunc(g.doc, func(r rune) bool { return r == ' ' || r == '.' || r == ',' })
		if !slices.Contains(words, kind) || strings.HasPrefix(g.doc, "Phases") {
			continue
		}
		title, rest, _ := strings.Cut(g.doc, ".")
		w.line("\n## %s\n", title)
		if rest = strings.TrimSpace(rest); rest != "" {
			w.line("%s\n", rest)
		}
		w.table(map[bool]string{true: "condition", false: "reason"}[strings.HasPrefix(title, "Condition")], g.values)
	}
}

// sentence turns a field's comment, which starts with its name, into a sentence of its own.
func sentence(description, name string) string {
	return capitalised(strings.TrimPrefix(oneLine(description), name+" "))
}
