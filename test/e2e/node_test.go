package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/testing/built"
)

// onNode runs a command inside the local node, as root there, and returns what it printed.
func (s *suite) onNode(t *testing.T, command ...string) string {
	t.Helper()
	program, err := built.Helper("cluster")
	must(t, err)
	cmd := exec.CommandContext(t.Context(), program, append([]string{"exec", "--"}, command...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run %q on the node: %v\n%s", command, err, stderr.String())
	}
	return string(out)
}

// processes are the ids, in the node, of the processes whose command line contains a text.
func (s *suite) processes(t *testing.T, text string) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(s.onNode(t, "ps", "-eo", "pid=,args=")) {
		id, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.Contains(args, text) {
			found = append(found, id)
		}
	}
	return found
}

func (s *suite) kill(t *testing.T, ids ...string) {
	t.Helper()
	s.onNode(t, append([]string{"kill", "-KILL"}, ids...)...)
}

// runnerOf is the first process of the container that a process of its command belongs to.
func (s *suite) runnerOf(t *testing.T, process string) string {
	t.Helper()
	return strings.TrimSpace(s.onNode(t, "ps", "-o", "ppid=", "-p", process))
}

// kubectl runs the client that people use, and returns both of its streams as one.
func (s *suite) kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), kubectlPath(), args...)
	cmd.Dir = s.root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// kubectlPath prefers the kubectl that the local cluster was built with, which `make test` names.
func kubectlPath() string {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return filepath.Join(dir, "kubectl")
	}
	return "kubectl"
}
