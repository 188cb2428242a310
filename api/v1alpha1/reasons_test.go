package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Whoever meets a reason finds a section with its name: what it looks like, what to look at, and what to do.
func TestEveryReasonIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	reasons := reasonsOf(t, "conditions.go")
	if len(reasons) < 45 {
		t.Fatalf("only %d reasons were found", len(reasons))
	}
	sections, _, _ := strings.Cut(string(page), "\n## Alerts\n")
	known := map[string]bool{}
	for _, reason := range reasons {
		known[reason] = true
		_, section, _ := strings.Cut(sections, "\n### "+reason+"\n")
		section, _, _ = strings.Cut(section, "\n#")
		for _, part := range []string{"\n- Symptom: ", "\n- Command: ", "\n- Fix: "} {
			if strings.Count(section, part) != 1 {
				t.Errorf("docs/troubleshooting.md doesn't have one %q for reason %s", strings.TrimSpace(part), reason)
			}
		}
	}
	seen := map[string]bool{}
	for line := range strings.Lines(sections) {
		heading, ok := strings.CutPrefix(strings.TrimSpace(line), "### ")
		if !ok {
			continue
		}
		if !known[heading] || seen[heading] {
			t.Errorf("docs/troubleshooting.md has a section %s, which is no reason or is there already", heading)
		}
		seen[heading] = true
	}
}

func reasonsOf(t *testing.T, file string) (reasons []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		reasons = append(reasons, value)
		return true
	})
	return reasons
}
