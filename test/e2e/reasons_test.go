package e2e

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"toolcall.dev/operator/api/v1alpha1"
)

// reached are the reasons that calls of this run ended with.
var reached sync.Map

// notHere are the reasons that only other tests reach. BudgetExceeded needs a requester that keeps thousands of calls
// pending: controllers/toolcall/budget_test.go reaches it. GuardError needs an API server that answers no question about a requester,
// and from Kubernetes 1.37 on no admission webhook is in its way: controllers/toolcall/access_test.go reaches it. IsolationUnavailable
// needs a node without the walls: the runner's tests have the system calls denied.
var notHere = []string{v1alpha1.ReasonBudgetExceeded, v1alpha1.ReasonGuardError, v1alpha1.ReasonIsolationUnavailable}

// missingReasons are the terminal reasons that the API defines and no call of this run ended with. Only a run of all tests is
// asked for them.
func missingReasons() ([]string, error) {
	if !isWholeRun() {
		return nil, nil
	}
	defined, err := terminalReasons(filepath.Join("..", "..", "api", "v1alpha1", "conditions.go"))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(defined, func(reason string) bool {
		_, was := reached.Load(reason)
		return was || slices.Contains(notHere, reason)
	}), nil
}

// terminalReasons are the constants of the blocks that say that they are a call's.
func terminalReasons(file string) ([]string, error) {
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("parse the reasons: %w", err)
	}
	var reasons []string
	blocks := 0
	for _, declaration := range tree.Decls {
		block, ok := declaration.(*ast.GenDecl)
		if !ok || !strings.HasPrefix(block.Doc.Text(), "Terminal reasons") && !strings.HasPrefix(block.Doc.Text(), "Reasons of a ToolCall that was denied") {
			continue
		}
		blocks++
		for _, spec := range block.Specs {
			for _, value := range spec.(*ast.ValueSpec).Values {
				reason, err := strconv.Unquote(value.(*ast.BasicLit).Value)
				if err != nil {
					return nil, fmt.Errorf("read a reason: %w", err)
				}
				reasons = append(reasons, reason)
			}
		}
	}
	if blocks < 3 {
		return nil, fmt.Errorf("%s has %d blocks of terminal reasons, want those of denied calls, of file actions and of the others", file, blocks)
	}
	return reasons, nil
}
