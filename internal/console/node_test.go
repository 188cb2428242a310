package console

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// The page's modules without elements are tested where they run: by Node.js.
func TestThePagesLogic(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("Node.js isn't installed: make test-programs installs it")
	}
	files, err := filepath.Glob("static_test/*.test.mjs")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no tests: %v", err)
	}
	if out, err := exec.CommandContext(t.Context(), node, append([]string{"--test", "--test-reporter=tap"}, files...)...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
