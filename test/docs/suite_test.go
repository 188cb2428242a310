package docs

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
)

// root is the project's folder.
const root = "../.."

const toolImage = "toolcall.dev/tools:dev"

// needCluster skips the test where nobody asked for those that need a cluster.
func needCluster(t *testing.T) {
	t.Helper()
	if os.Getenv("TOOLCALL_E2E") != "1" {
		t.Skip("this runs on a cluster, with TOOLCALL_E2E=1 and KUBECONFIG set; `make test` does that")
	}
	if os.Getenv("KUBECONFIG") == "" {
		t.Fatal("TOOLCALL_E2E=1 needs KUBECONFIG: `make cluster-up` starts a cluster, `make -s kubeconfig` prints the path")
	}
}

// command is a program that a test runs in the project's folder.
type command struct {
	args  []string
	stdin string
	env   []string
	limit time.Duration
}

// run gives what it printed: standard output alone, and the error stream for messages.
func (c command) run(t *testing.T) (out, errOut string, err error) {
	t.Helper()
	limit := c.limit
	if limit == 0 {
		limit = 2 * time.Minute
	}
	// Cleanup functions run after the test's own context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Dir = root
	cmd.Stdin = strings.NewReader(c.stdin)
	cmd.Env = append(os.Environ(), "PATH="+searchPath())
	cmd.Env = append(cmd.Env, c.env...)
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return stdout.String(), stderr.String(), err
}

// must runs it and wants it to succeed.
func (c command) must(t *testing.T) string {
	t.Helper()
	out, errOut, err := c.run(t)
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(c.args, " "), err, out, errOut)
	}
	return out
}

// searchPath finds the kubectl that the local cluster was built with before any other.
func searchPath() string {
	path := os.Getenv("PATH")
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		path = assets + string(os.PathListSeparator) + path
	}
	return path
}

func kubectl(args ...string) command { return command{args: append([]string{kubectlPath()}, args...)} }

func kubectlPath() string {
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		return filepath.Join(assets, "kubectl")
	}
	return "kubectl"
}

// with gives a command its standard input.
func (c command) with(stdin string) command {
	c.stdin = stdin
	return c
}

// apply makes the objects of a manifest anew, and takes them away at the end of the test.
func apply(t *testing.T, manifest string) {
	t.Helper()
	discard(t, manifest)
	t.Cleanup(func() { discard(t, manifest) })
	kubectl("apply", "-f", "-").with(manifest).must(t)
}

func discard(t *testing.T, manifest string) {
	t.Helper()
	if out, errOut, err := kubectl("delete", "--ignore-not-found", "--wait", "--timeout=110s", "-f", "-").with(manifest).run(t); err != nil {
		t.Errorf("take away: %v\n%s%s", err, out, errOut)
	}
}

// finished waits for the end of a call.
func finished(t *testing.T, namespace, name string) *v1alpha1.ToolCall {
	t.Helper()
	kubectl("wait", "--for=condition=Finished", "--timeout=110s", "-n", namespace, "tc/"+name).must(t)
	call := &v1alpha1.ToolCall{}
	get(t, call, "-n", namespace, "tc/"+name)
	return call
}

// get reads an object.
func get(t *testing.T, into any, args ...string) {
	t.Helper()
	out := kubectl(append([]string{"get", "-o", "json"}, args...)...).must(t)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("kubectl get %s: %v", strings.Join(args, " "), err)
	}
}

// eventually looks again and again, for what takes a moment to be so.
func eventually(t *testing.T, what string, look func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !look(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is still not so that %s", what)
		}
	}
}

// awaitRight waits until a right is in force.
func awaitRight(t *testing.T, user string, question ...string) {
	t.Helper()
	eventually(t, user+" may "+strings.Join(question, " "), func() bool {
		said, _, _ := kubectl(append([]string{"auth", "can-i", "--as=" + user}, question...)...).run(t)
		return strings.TrimSpace(said) == "yes"
	})
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
