package decide_test

import (
	"go/build"
	"strings"
	"testing"
)

// The package talks to no cluster, network or file system: its callers read what it decides on.
func TestThePackageStaysPure(t *testing.T) {
	t.Parallel()
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range pkg.Imports {
		for _, refused := range []string{"k8s.io/client-go", "sigs.k8s.io/", "net", "os", "io", "time", "context"} {
			if name == refused || strings.HasPrefix(name, strings.TrimSuffix(refused, "/")+"/") {
				t.Errorf("import of %s", name)
			}
		}
	}
}
