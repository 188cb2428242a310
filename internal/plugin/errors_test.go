package plugin

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// commandLines has a line for each command that talks to the cluster, and its exit code for errors.
var commandLines = map[string]int{
	"run -- ls": 125, "run --detach -- ls": 125, "run --dry-run=server -- ls": 125, "check -- ls": 125, "wait a": 125,
	"logs a": 1, "logs -f a": 1, "get": 1, "get a": 1, "get -A": 1, "describe a": 1, "explain-denial a": 1, "cancel a": 1,
	"wait --all": 125, "wait -l a=b": 125, "cancel --all": 1, "cancel -l a=b --wait": 1, "delete a": 1, "delete --all": 1, "logs --all": 1, "logs -f -l a=b": 1,
	"rerun a": 125, "tools": 1, "top": 1, "env describe a": 1, "get -o wide": 1, "get --watch": 1,
	"env list": 1, "env suspend a": 1, "env resume a": 1,
	"session start": 1, "session start --detach": 1, "session start --dry-run=server": 1, "session list": 1, "session describe a": 1,
	"session suspend a": 1, "session resume a": 1, "session end a": 1, "session exec a -- ls": 125, "session shell a": 125,
	"run --session a -- ls": 125,
}

// Every command reports an unreachable cluster, in one line on standard error, with the exit code for its errors.
func TestACommandWithoutACluster(t *testing.T) {
	t.Parallel()
	config := plugintest.Offline(t)
	for line, want := range commandLines {
		if line == "wait a" {
			continue // It retries until the cluster is back.
		}
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			out, errs, code := plugintest.Run("", append([]string{"--kubeconfig", config, "--request-timeout=5s"}, strings.Fields(line)...)...)
			if code != want || out != "" || !strings.HasPrefix(errs, "error: ") || !strings.Contains(errs, "connection refused") || strings.Contains(errs, "unknown whether") || strings.Count(errs, "\n") != 1 {
				t.Errorf("exit code %d, %q, %q", code, out, errs)
			}
		})
	}
}

// Every command reports a kubeconfig that can't be read, and how to choose another.
func TestACommandWithoutAKubeconfig(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("clusters: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range commandLines {
		for _, config := range []string{broken, filepath.Join(t.TempDir(), "none")} {
			_, errs, code := plugintest.Run("", append([]string{"--kubeconfig", config}, strings.Fields(line)...)...)
			if code != want || !strings.HasPrefix(errs, "error: ") || !strings.Contains(errs, "set --kubeconfig, --context or KUBECONFIG") && !strings.Contains(errs, "configuration") {
				t.Errorf("%s: exit code %d, %q", line, code, errs)
			}
		}
	}
}

// Every command reports a missing permission. Reads name the object, writes the role that has the permission.
func TestACommandWithoutPermission(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	nobody := f.As("nobody")
	for line, want := range commandLines {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			got := nobody(strings.Fields(line)...)
			if got.Code != want || got.Out != "" && line != "tools" || !strings.Contains(got.Err, "forbidden") {
				t.Errorf("got %+v", got)
			}
			if strings.Contains(line, "session") && !strings.Contains(got.Err, "toolcall-user") ||
				strings.HasPrefix(line, "run") && !strings.Contains(got.Err, "toolcall-user") || strings.HasPrefix(line, "env s") && !strings.Contains(got.Err, "toolcall-admin") {
				t.Errorf("no role is named: %s", got.Err)
			}
		})
	}
}

// Warnings of the API server go to standard error. The client drops those with control characters.
func TestWarningsOfTheAPIServer(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	config := f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		w.Header().Add("Warning", `299 - "old field"`)
		next.ServeHTTP(w, r)
	})
	f.Detached("c")
	out, errs, code := plugintest.Run("", "--kubeconfig", config, "-n", f.Namespace, "get", "c", "-o", "name")
	if code != 0 || out != "toolcall.toolcall.dev/c\n" || !strings.Contains(errs, "Warning: old field\n") {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
}

// A create request whose response is lost names the call that may exist.
func TestARunWhoseResponseIsLost(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	config := f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	})
	_, errs, code := plugintest.Run("", "--kubeconfig", config, "-n", f.Namespace, "run", "--name", "c", "--", "ls")
	if code != 125 || !strings.Contains(errs, "unknown whether the call was created; if it was, its name is "+f.Namespace+"/c") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	if f.Call("c").Spec.Structured.Binary != "ls" {
		t.Error("the call is another one")
	}
}

// Exit codes of errors: 1 could be the exit code of a call, so the commands that follow one use 125.
func TestExitCodesOfErrors(t *testing.T) {
	t.Parallel()
	for _, e := range []struct {
		err  *cli.ExitError
		want string
	}{{&cli.ExitError{Code: 7}, "exit code 7"}, {&cli.ExitError{Code: 7, Err: errors.New("because")}, "because"}} {
		if e.err.Error() != e.want || !errors.Is(e.err, e.err.Err) && e.err.Err != nil {
			t.Errorf("got %q", e.err.Error())
		}
	}
	for line, want := range map[string]int{"run": 125, "check": 125, "wait": 125, "logs": 1, "session exec": 125, "session shell": 125, "session start a b": 1, "nonsense": 1, "--nonsense": 1, "": 0, "--help": 0, "version --client": 0, "version": 1} {
		if _, _, code := plugintest.Run("", strings.Fields(line)...); code != want {
			t.Errorf("%q exits with %d, not %d", line, code, want)
		}
	}
}
