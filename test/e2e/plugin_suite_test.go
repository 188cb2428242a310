package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/internal/testing/built"
)

// pluginDir is the folder with the built plugin, under both of its names, to be put into PATH.
var pluginDir = sync.OnceValues(func() (string, error) {
	program, err := built.Program("kubectl-toolcall")
	if err != nil {
		return "", err
	}
	link := filepath.Join(filepath.Dir(program), "kubectl_complete-toolcall")
	if err := os.Symlink(filepath.Base(program), link); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return filepath.Dir(program), nil
})

// said is what a command printed, and its exit code.
type said struct {
	out, err string
	code     int
}

// pluginCommand is "kubectl toolcall" in the test's namespace.
func (sp *space) pluginCommand(t *testing.T, ctx context.Context, args ...string) *exec.Cmd {
	t.Helper()
	dir, err := pluginDir()
	must(t, err)
	full := append([]string{"toolcall", "-n", sp.namespace}, args...)
	cmd := exec.CommandContext(ctx, kubectlPath(), full...)
	cmd.Dir = t.TempDir()
	path := dir + string(os.PathListSeparator) + filepath.Dir(kubectlPath()) + string(os.PathListSeparator) + os.Getenv("PATH")
	cmd.Env = append(os.Environ(), "PATH="+path)
	return cmd
}

// plugin runs a command to its end.
func (sp *space) plugin(t *testing.T, stdin string, args ...string) said {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := sp.pluginCommand(t, ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	code := exitOf(t, cmd.Run())
	return said{out.String(), errs.String(), code}
}

func exitOf(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	default:
		t.Fatal(err)
		return 0
	}
}

// expectSaid compares the exit code and standard output, and wants a part of standard error.
func expectSaid(t *testing.T, got said, code int, out, errPart string) {
	t.Helper()
	if got.code != code || got.out != out || !strings.Contains(got.err, errPart) {
		t.Errorf("exit code %d, not %d; %q, not %q; standard error %q, should hold %q", got.code, code, clip(got.out, 2000), clip(out, 2000), clip(got.err, 2000), errPart)
	}
}

func objectMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}
