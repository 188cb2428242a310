package docs

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// definition is the part of a CustomResourceDefinition that a page shows.
type definition struct {
	Spec struct {
		Group, Scope string
		Names        struct {
			Kind, Plural string
			ShortNames   []string
		}

		Versions []struct {
			Schema struct{ OpenAPIV3Schema schema }
		}
	}
}

type schema struct {
	Properties           map[string]schema
	Items                *schema
	AdditionalProperties *schema
	Enum                 []json.RawMessage
	Default              json.RawMessage
}

// Every field that the API server knows has a place on its kind's page, except below types of Kubernetes. Concepts lists every kind.
func TestPagesHaveEveryField(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(filepath.Join(root, "config/crd/toolcall.dev_*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("found the definitions %q: %v", paths, err)
	}
	concepts := read(t, "docs/concepts.md")
	for _, path := range paths {
		d := &definition{}
		if err := yaml.Unmarshal([]byte(read(t, "config/crd/"+filepath.Base(path))), d); err != nil {
			t.Fatal(err)
		}
		page := read(t, "docs/reference/"+strings.ToLower(d.Spec.Names.Kind)+".md")
		if resource := d.Spec.Names.Plural + "." + d.Spec.Group; !strings.Contains(page, "| resource | `"+resource+"` |") {
			t.Errorf("the page about %s doesn't say that its resource is %s", d.Spec.Names.Kind, resource)
		}
		row := "\n| " + d.Spec.Names.Kind
		for _, short := range d.Spec.Names.ShortNames {
			row += " (`" + short + "`)"
		}
		row += " | " + map[string]string{"Namespaced": "namespace", "Cluster": "cluster"}[d.Spec.Scope] + " | "
		if !strings.Contains(concepts, row) {
			t.Errorf("docs/concepts.md doesn't list it: %q", row)
		}
		for name, part := range d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties {
			if name == "spec" || name == "status" {
				wantFields(t, page, name, &part)
			}
		}
	}
}

// wantFields looks for what a field holds.
func wantFields(t *testing.T, page, path string, s *schema) {
	t.Helper()
	switch {
	case s.Items != nil:
		wantFields(t, page, path+"[]", s.Items)
	case s.AdditionalProperties != nil:
		wantFields(t, page, path+"{}", s.AdditionalProperties)
	}
	for name, field := range s.Properties {
		at := path + "." + name
		_, section, found := strings.Cut(page, "\n### "+at+"\n")
		if !found {
			t.Errorf("no page has the field %s", at)
			continue
		}
		section, _, _ = strings.Cut(section, "\n#")
		for _, value := range field.Enum {
			if text, err := strconv.Unquote(string(value)); err == nil && !strings.Contains(section, text) {
				t.Errorf("%s can be %s, its section doesn't say so:\n%s", at, text, section)
			}
		}
		if field.Default != nil && !strings.Contains(section, "default `"+string(field.Default)+"`") {
			t.Errorf("the default of %s is %s, its section doesn't say so:\n%s", at, field.Default, section)
		}
		if !strings.Contains(section, "](https://kubernetes.io/") {
			wantFields(t, page, at, &field)
		}
	}
}
