// Package mutations tests the patches of this folder, each of which breaks one promise of the documentation. run.sh shows
// that a test notices each of them; the test here only shows that run.sh can: that the patches apply to the project as it
// is now, and that the tests that they name exist.
package mutations

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

var (
	promise = regexp.MustCompile(`(?m)^Promise: [A-Z].*\.$`)
	shownBy = regexp.MustCompile(`(?m)^Shown by: (\./\S+) (Test\w+)$`)
	changed = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)`)
)

func TestPatchesApplyAndNameTheirTests(t *testing.T) {
	t.Parallel()
	patches, err := filepath.Glob("*.patch")
	if err != nil || len(patches) < 20 {
		t.Fatalf("there are %d patches, %v", len(patches), err)
	}
	for _, patch := range patches {
		t.Run(strings.TrimSuffix(patch, ".patch"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(patch)
			if err != nil {
				t.Fatal(err)
			}
			header, diff, _ := strings.Cut(string(text), "\ndiff ")
			if !promise.MatchString(header) {
				t.Error(`the header has no line "Promise: One sentence."`)
			}
			checkTest(t, header)
			checkDiff(t, patch, diff)
		})
	}
}

// checkTest fails when the test isn't there that a header names.
func checkTest(t *testing.T, header string) {
	t.Helper()
	named := shownBy.FindStringSubmatch(header)
	if named == nil {
		t.Error(`the header has no line like "Shown by: ./internal/guards TestName"`)
		return
	}
	if !slices.Contains(testsOf(t, filepath.Join(root, named[1])), named[2]) {
		t.Errorf("%s has no test %s", named[1], named[2])
	}
}

// testsOf are the names of a folder's test functions.
func testsOf(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range parsed.Decls {
			if function, ok := declared.(*ast.FuncDecl); ok && function.Recv == nil {
				names = append(names, function.Name.Name)
			}
		}
	}
	return names
}

// checkDiff fails when a patch doesn't apply, or changes a test.
func checkDiff(t *testing.T, patch, diff string) {
	t.Helper()
	files := changed.FindAllStringSubmatch(diff, -1)
	if len(files) == 0 {
		t.Error("the patch changes nothing")
	}
	for _, file := range files {
		if strings.HasSuffix(file[1], "_test.go") || strings.HasPrefix(file[1], "test/") {
			t.Errorf("the patch changes %s, which is no part of the product", file[1])
		}
	}
	check := exec.CommandContext(t.Context(), "git", "apply", "--check", "test/mutations/"+patch)
	check.Dir = root
	if said, err := check.CombinedOutput(); err != nil {
		t.Errorf("the patch doesn't apply any more: make its change again by hand, and replace what follows its header with the output of git diff: %v\n%s", err, said)
	}
}
