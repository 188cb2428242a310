package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// installing keeps tests that run at the same time from calling apt-get at the same time.
var installing sync.Mutex

// debian installs a package where what it brings isn't there, unless TOOLCALL_NO_INSTALL=1.
func debian(t *testing.T, name, why string, there func() bool) {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	if there() {
		return
	}
	if os.Getenv("TOOLCALL_NO_INSTALL") == "1" {
		t.Fatalf("missing: %s (%s); run apt-get install %s, or unset TOOLCALL_NO_INSTALL", name, why, name)
	}
	t.Logf("installing the Debian package %s (%s)", name, why)
	install := command{args: []string{"apt-get", "install", "-y", "--no-install-recommends", name}, limit: 5 * time.Minute}
	if _, _, err := install.run(t); err == nil && there() {
		return
	}
	command{args: []string{"apt-get", "update"}, limit: 5 * time.Minute}.must(t)
	install.must(t)
	if !there() {
		t.Fatalf("the Debian package %s is installed, but what it is for (%s) still isn't there", name, why)
	}
}

// python finds an interpreter that has the Kubernetes client: Debian's, where another one comes first in PATH.
func python(t *testing.T) string {
	t.Helper()
	found := ""
	debian(t, "python3-kubernetes", "the Kubernetes client for Python", func() bool {
		for _, candidate := range []string{"python3", "/usr/bin/python3"} {
			if exec.Command(candidate, "-c", "import kubernetes").Run() == nil {
				found = candidate
				return true
			}
		}
		return false
	})
	return found
}

// node gives a search path on which node is new enough for the examples: the machine's, or else one from npm.
func node(t *testing.T) string {
	t.Helper()
	debian(t, "npm", "installing the examples' packages", func() bool {
		_, err := exec.LookPath("npm")
		return err == nil
	})
	if version, err := exec.Command("node", "--version").Output(); err == nil && newEnough(string(version)) {
		return searchPath()
	}
	folder := t.TempDir()
	copyFolder(t, "test/docs/testdata/node", folder)
	npm(t, folder, "ci", "--ignore-scripts")
	return filepath.Join(folder, "node_modules", ".bin") + string(os.PathListSeparator) + searchPath()
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

func npm(t *testing.T, folder string, args ...string) {
	t.Helper()
	args = append([]string{"npm", "--prefix", folder, "--no-audit", "--no-fund"}, args...)
	command{args: args, limit: 5 * time.Minute}.must(t)
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
