package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/testing/built"
)

// helper gives a program that only tests start.
func helper(t *testing.T, name string) string {
	t.Helper()
	program, err := built.Helper(name)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// nodeModules gives an installation of Node.js packages.
func nodeModules(t *testing.T, name string) string {
	t.Helper()
	folder, err := built.NodeModules(name)
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// python finds an interpreter that has the Kubernetes client: Debian's, where another one comes first in PATH.
func python(t *testing.T) string {
	t.Helper()
	for _, candidate := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(candidate, "-c", "import kubernetes").Run() == nil {
			return candidate
		}
	}
	t.Fatal("no Python with the Kubernetes client is here: run `make test-programs`")
	return ""
}

// node gives a search path on which node is new enough for the examples: the machine's, or else one from npm.
func node(t *testing.T) string {
	t.Helper()
	if version, err := exec.Command("node", "--version").Output(); err == nil && newEnough(string(version)) {
		return searchPath()
	}
	return filepath.Join(nodeModules(t, "node"), ".bin") + string(os.PathListSeparator) + searchPath()
}

// newEnough is what the examples' package.json ask for: 22.19.
func newEnough(version string) bool {
	parts := strings.Split(strings.TrimPrefix(strings.TrimSpace(version), "v"), ".")
	if len(parts) < 2 {
		return false
	}
	major, _ := strconv.Atoi(parts[0])
	minor, _ := strconv.Atoi(parts[1])
	return major > 22 || major == 22 && minor >= 19
}

// copyFolder copies a folder of the project, so that nothing is installed into the project.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(filepath.Join(root, from))); err != nil {
		t.Fatal(err)
	}
}

func TestNewEnough(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"v18.20.4\n": false, "v22.18.0": false, "v22.19.0": true, "v24.1.0": true, "v26.10.0": true, "": false, "v22": false, "nonsense": false,
	} {
		if newEnough(version) != want {
			t.Errorf("newEnough(%q) is %t", version, !want)
		}
	}
}
