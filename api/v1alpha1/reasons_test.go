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

// Whoever meets a reason finds out what it means and what to do.
func TestEveryReasonIsDocumented(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	reasons := reasonsOf(t, "conditions.go")
	if len(reasons) < 45 {
		t.Fatalf("only %d reasons were found", len(reasons))
	}
	known := map[string]bool{}
	for _, reason := range reasons {
		known[reason] = true
		if n := strings.Count(string(docs), "\n| `"+reason+"` | "); n != 1 {
			t.Errorf("docs/operations.md has %d rows for reason %s", n, reason)
		}
	}
	_, rows, _ := strings.Cut(string(docs), "\n## Reasons\n")
	rows, _, _ = strings.Cut(rows, "\n## ")
	for line := range strings.Lines(rows) {
		if reason, ok := strings.CutPrefix(line, "| `"); ok {
			if reason, _, _ = strings.Cut(reason, "`"); !known[reason] {
				t.Errorf("docs/operations.md has a row for %s, which is no reason", reason)
			}
		}
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
