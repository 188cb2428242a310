package built

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatIsBuiltIsFoundFromAnyFolderOfTheProject(t *testing.T) {
	root := t.TempDir()
	below := filepath.Join(root, "test", "some")
	for _, dir := range []string{below, filepath.Join(root, "bin", "test")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"go.mod", "bin/mcp", "bin/test/helm"} {
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(below)
	if path, err := Program("mcp"); err != nil || path != filepath.Join(root, "bin", "mcp") {
		t.Errorf("the program is %q, %v", path, err)
	}
	if path, err := Helper("helm"); err != nil || path != filepath.Join(root, "bin", "test", "helm") {
		t.Errorf("the helper is %q, %v", path, err)
	}
	if path, err := NodeModules("mcp"); err == nil || !strings.Contains(err.Error(), "make test-programs") {
		t.Errorf("packages that aren't there are %q, %v", path, err)
	}
}
