package envresolve

import (
	"go/build"
	"slices"
	"testing"
)

// TestThePackageStaysPure holds the imports to a short list: the package is linked into the supervisor.
func TestThePackageStaysPure(t *testing.T) {
	t.Parallel()
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range pkg.Imports {
		if !slices.Contains([]string{"cmp", "errors", "fmt", "io/fs", "slices", "strings"}, name) {
			t.Errorf("import of %s: only the standard library's pure packages may be used", name)
		}
	}
}
