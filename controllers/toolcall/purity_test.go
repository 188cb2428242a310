package toolcall

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// asks are the methods of what a pass shares with others which change nothing, or take a place that they answer about. Whatever else is
// called on it is an effect, which apply.go alone carries out.
var asks = map[string][]string{
	"Client":       nil,
	"Queue":        {"Admit", "IsWaiting"},
	"Budgets":      {"Seed", "Ask"},
	"SessionQueue": {"Place", "Ahead"},
	"Earlier":      {"Has"},
	"Hub":          {"Since", "RunnerByKey", "Runner", "Result", "HoldsOther"},
	"Hosts":        {"ClaimFitting", "Release"},
	"Nodes":        nil,
	"Pools":        nil,
	"Outputs":      {"Finish"},
	"Retention":    nil,
	"Events":       nil,
	"Trace":        nil,
}

func TestOnlyOneFileCarriesEffectsOut(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, name := range files {
		// Events are made of a status that was written; watches.go enters calls into their lines in the order in which they come, and seed.go
		// those that an operator before this one let in.
		if strings.HasSuffix(name, "_test.go") || slices.Contains([]string{"apply.go", "events.go", "programs.go", "watches.go", "seed.go"}, name) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			shared, method := sharedCall(n)
			allowed, is := asks[shared]
			if !is {
				return true
			}
			found[shared+"."+method] = true
			if !slices.Contains(allowed, method) {
				t.Errorf("%s calls %s.%s: make it an effect", name, shared, method)
			}
			return true
		})
	}
	for shared, methods := range asks {
		for _, method := range methods {
			if !found[shared+"."+method] {
				t.Errorf("nothing calls %s.%s: it needs no mention", shared, method)
			}
		}
	}
}

// sharedCall is r.SHARED.METHOD(...).
func sharedCall(n ast.Node) (shared, method string) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", ""
	}
	m, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	of, ok := m.X.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	return of.Sel.Name, m.Sel.Name
}
