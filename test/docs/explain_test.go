package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// field is one field as its page has it.
type field struct {
	path, description, kind string
	required                bool
}

var fieldSection = regexp.MustCompile(`(?m)^### (\S+)\n\n(.+)\n\n- ([^;\n]+); (\*\*required\*\*|optional)`)

// pageFields reads those of a page, by the kind's plural.
func pageFields(t *testing.T, page string) []field {
	t.Helper()
	var all []field
	for _, m := range fieldSection.FindAllStringSubmatch(page, -1) {
		all = append(all, field{path: m[1], description: m[2], kind: m[3], required: m[4] != "optional"})
	}
	if len(all) != strings.Count(page, "\n### ") {
		t.Fatalf("%d of %d fields could be read", len(all), strings.Count(page, "\n### "))
	}
	return all
}

// The pages about the kinds say what kubectl explain says.
func TestPagesSayWhatKubectlExplains(t *testing.T) {
	needCluster(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs/reference/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, path := range pages {
		page := read(t, "docs/reference/"+filepath.Base(path))
		named := regexp.MustCompile("resource \\| `([a-z]+)\\.toolcall\\.dev`").FindStringSubmatch(page)
		if named == nil {
			continue // The page about conditions and reasons.
		}
		resource := named[1]
		for _, f := range pageFields(t, page) {
			// Those of the first level, and a few deep ones.
			if strings.Count(f.path, ".") > 1 && !strings.HasSuffix(f.path, ".name") && !strings.HasSuffix(f.path, "Seconds") {
				continue
			}
			compared++
			compare(t, resource, f)
		}
	}
	if compared < 60 {
		t.Errorf("compared %d fields only", compared)
	}
}

// compare looks for a field in what kubectl says about the object that it is in: there it has all fields, with their descriptions.
func compare(t *testing.T, resource string, f field) {
	t.Helper()
	path := resource + "." + strings.NewReplacer("[]", "", "{}", "").Replace(f.path)
	dot := strings.LastIndex(path, ".")
	outer, entry := explain(t, path[:dot]), " "+path[dot+1:]+" <"
	_, said, found := strings.Cut(outer, entry)
	if !found {
		t.Errorf("kubectl explain %s has no field %s", path[:dot], path[dot+1:])
		return
	}
	if !strings.Contains(said, strings.Join(strings.Fields(f.description), " ")) {
		t.Errorf("kubectl explain %s doesn't say %q of %s:\n%s", path[:dot], f.description, path[dot+1:], outer)
	}
	kind := map[string]string{"string": "string", "boolean": "boolean", "integer (int32)": "integer", "integer (int64)": "integer", "list of string": "[]string"}[f.kind]
	if kind == "" {
		return
	}
	if !strings.Contains(outer, entry+kind+">") {
		t.Errorf("kubectl explain %s has no field%s%s>", path[:dot], entry, kind)
	}
	if got := strings.Contains(outer, entry+kind+"> -required-"); got != f.required {
		t.Errorf("%s is required: %t by kubectl explain, %t on the page", path, got, f.required)
	}
}

// explained keeps what was asked for already: fields share the objects that they are in.
var explained = map[string]string{}

func explain(t *testing.T, path string) string {
	t.Helper()
	if _, ok := explained[path]; !ok {
		explained[path] = strings.Join(strings.Fields(kubectl("explain", "--api-version=toolcall.dev/v1alpha1", path).must(t)), " ")
	}
	return explained[path]
}
