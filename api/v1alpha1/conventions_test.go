package v1alpha1

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
)

// field is one field of a struct of the API, with what is written about it.
type field struct {
	owner, name, json string
	doc               string
	kind              ast.Expr
}

// fields parses the package's types.
func fields(t *testing.T) []field {
	t.Helper()
	var all []field
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), "_types.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				all = append(all, fieldsOf(spec)...)
			}
			return true
		})
	}
	if len(all) < 80 {
		t.Fatalf("found %d fields only: the test looks in the wrong place", len(all))
	}
	return all
}

func fieldsOf(spec *ast.TypeSpec) []field {
	structure, ok := spec.Type.(*ast.StructType)
	if !ok || strings.HasSuffix(spec.Name.Name, "List") {
		return nil
	}
	var found []field
	for _, f := range structure.Fields.List {
		tag := ""
		if f.Tag != nil {
			tag = reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json")
		}
		name := ""
		if len(f.Names) > 0 {
			name = f.Names[0].Name
		}
		if strings.Contains(tag, "inline") {
			continue
		}
		var doc strings.Builder
		if f.Doc != nil {
			for _, line := range f.Doc.List {
				doc.WriteString(strings.TrimPrefix(strings.TrimPrefix(line.Text, "//"), " ") + "\n")
			}
		}
		found = append(found, field{owner: spec.Name.Name, name: name, json: strings.Split(tag, ",")[0], doc: doc.String(), kind: f.Type})
	}
	return found
}

func TestFieldsAreDescribed(t *testing.T) {
	t.Parallel()
	for _, f := range fields(t) {
		if f.json == "" || f.json == "-" {
			t.Errorf("%s.%s has no JSON name", f.owner, f.name)
			continue
		}
		if first := strings.Fields(f.doc); len(first) == 0 || first[0] != f.json {
			t.Errorf("%s.%s: the comment must start with the JSON name %q, it is %q", f.owner, f.name, f.json, f.doc)
		}
		if strings.Contains(f.doc, "+optional") == strings.Contains(f.doc, "+required") {
			t.Errorf("%s.%s must say either +optional or +required", f.owner, f.json)
		}
	}
}

// kubectl explain shows a field's description and not its default.
func TestDefaultsAreDescribed(t *testing.T) {
	t.Parallel()
	found := 0
	for _, f := range fields(t) {
		_, value, ok := strings.Cut(f.doc, "+kubebuilder:default=")
		if value, _, _ = strings.Cut(value, "\n"); !ok || value == "{}" {
			continue
		}
		found++
		if text, _, _ := strings.Cut(f.doc, "+kubebuilder"); !strings.Contains(strings.ToLower(text), "default") && !strings.Contains(text, "unset") {
			t.Errorf("%s.%s: the comment doesn't say that its default is %s", f.owner, f.json, value)
		}
	}
	if found < 15 {
		t.Errorf("found %d defaults only", found)
	}
}

// Strings, lists and maps that a client writes are bounded. A status is the operator's, which bounds it in
// code (outputs) or by what it copies.
func TestWhatClientsWriteIsBounded(t *testing.T) {
	t.Parallel()
	for _, f := range fields(t) {
		if strings.HasSuffix(f.owner, "Status") || statusOnly[f.owner] {
			continue
		}
		bounded := true
		switch kind := f.kind.(type) {
		case *ast.Ident:
			bounded = kind.Name != "string" || strings.Contains(f.doc, "MaxLength=") || strings.Contains(f.doc, "Enum=")
		case *ast.ArrayType:
			bounded = strings.Contains(f.doc, "MaxItems=") && strings.Contains(f.doc, "+listType=")
		case *ast.MapType:
			bounded = strings.Contains(f.doc, "MaxProperties=")
		}
		if !bounded {
			t.Errorf("%s.%s is not bounded", f.owner, f.json)
		}
	}
}

// statusOnly are parts of a status.
var statusOnly = map[string]bool{"ResolvedEnvironment": true, "ResolvedEnvVar": true, "MappedAction": true, "RunnerBinding": true, "CallTimings": true}

func TestTerminalPhases(t *testing.T) {
	t.Parallel()
	for phase, want := range map[Phase]bool{"": false, PhasePending: false, PhaseRunning: false, PhaseSucceeded: true, PhaseFailed: true, PhaseDenied: true, PhaseCancelled: true} {
		if phase.Terminal() != want {
			t.Errorf("%q.Terminal() is %v", phase, !want)
		}
	}
}
