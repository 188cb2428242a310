package plugin

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
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
	config := offline(t)
	for line, want := range commandLines {
		if line == "wait a" || line == "logs -f a" {
			continue // They retry until the cluster is back.
		}
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			out, errs, code := command("", append([]string{"--kubeconfig", config, "--request-timeout=5s"}, strings.Fields(line)...)...)
			if code != want || out != "" || !strings.HasPrefix(errs, "error: ") || !strings.Contains(errs, "connection refused") || strings.Count(errs, "\n") != 1 {
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
			_, errs, code := command("", append([]string{"--kubeconfig", config}, strings.Fields(line)...)...)
			if code != want || !strings.HasPrefix(errs, "error: ") || !strings.Contains(errs, "set --kubeconfig, --context or KUBECONFIG") && !strings.Contains(errs, "configuration") {
				t.Errorf("%s: exit code %d, %q", line, code, errs)
			}
		}
	}
}

// Every command reports a missing permission. Reads name the object, writes the role that has the permission.
func TestACommandWithoutPermission(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	nobody := f.as("nobody")
	for line, want := range commandLines {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			got := nobody(strings.Fields(line)...)
			if got.code != want || got.out != "" && line != "tools" || !strings.Contains(got.err, "forbidden") {
				t.Errorf("got %+v", got)
			}
			if strings.Contains(line, "session") && !strings.Contains(got.err, "toolcall-user") ||
				strings.HasPrefix(line, "run") && !strings.Contains(got.err, "toolcall-user") || strings.HasPrefix(line, "env s") && !strings.Contains(got.err, "toolcall-admin") {
				t.Errorf("no role is named: %s", got.err)
			}
		})
	}
}

// proxied is a kubeconfig of a proxy in front of the API server, which a test can change.
func (f *fixture) proxied(change func(w http.ResponseWriter, r *http.Request, next http.Handler)) string {
	f.t.Helper()
	raw, err := os.ReadFile(f.kubeconfig)
	if err != nil {
		f.t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		f.t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		f.t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		f.t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { change(w, r, proxy) }))
	f.t.Cleanup(server.Close)
	name := filepath.Join(f.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: k, cluster: {server: "%s"}}], contexts: [{name: c, context: {cluster: k}}]}`, server.URL)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return name
}

// Warnings of the API server go to standard error. The client drops those with control characters.
func TestWarningsOfTheAPIServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	config := f.proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		w.Header().Add("Warning", `299 - "old field"`)
		next.ServeHTTP(w, r)
	})
	f.detached("c")
	out, errs, code := command("", "--kubeconfig", config, "-n", f.namespace, "get", "c", "-o", "name")
	if code != 0 || out != "toolcall.toolcall.dev/c\n" || !strings.Contains(errs, "Warning: old field\n") {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
}

// A create request whose response is lost names the call that may exist.
func TestARunWhoseResponseIsLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	config := f.proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	})
	_, errs, code := command("", "--kubeconfig", config, "-n", f.namespace, "run", "--name", "c", "--", "ls")
	if code != 125 || !strings.Contains(errs, "unknown whether the call was created; if it was, its name is "+f.namespace+"/c") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	if f.call("c").Spec.Structured.Binary != "ls" {
		t.Error("the call is another one")
	}
}

// An API server that fails in the middle of check makes check fail: it doesn't say that the call is allowed.
func TestCheckWhoseReadsFail(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.policy()
	f.environment("tools", true)
	for _, part := range []string{"/executionenvironments", "/executionpolicies", "/selfsubjectaccessreviews"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			config := f.proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if strings.Contains(r.URL.Path, part) {
					http.Error(w, "etcd is unavailable", http.StatusInternalServerError)
					return
				}
				next.ServeHTTP(w, r)
			})
			out, errs, code := command("", "--kubeconfig", config, "-n", f.namespace, "check", "--", "ls")
			if code != 125 || strings.Contains(out, "yes") || !strings.Contains(errs, "etcd is unavailable") && !strings.Contains(errs, "InternalError") && !strings.Contains(errs, "error on the server") {
				t.Errorf("exit code %d, %q, %q", code, out, errs)
			}
		})
	}
}

func TestPermissionErrors(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "y", errors.New("no"))
	for action, c := range map[string]struct {
		err  error
		want string
	}{
		"get executionpolicies":     {forbidden, "you need permission to get executionpolicies: bind the ClusterRole toolcall-policy-viewer with a ClusterRoleBinding"},
		"list executionpolicies":    {forbidden, "toolcall-policy-viewer"},
		"get skills":                {forbidden, "you need permission to get skills in this namespace: the ClusterRole toolcall-user grants it"},
		"get executionenvironments": {errors.New("EOF"), "get executionenvironments: EOF"},
	} {
		if err := permissionError(action, c.err); !strings.Contains(err.Error(), c.want) || !errors.Is(err, c.err) {
			t.Errorf("%s: %v", action, err)
		}
	}
	if !errors.Is(unreadable("get skills", forbidden), errUnreadable) || errors.Is(unreadable("get skills", errors.New("EOF")), errUnreadable) {
		t.Error("a missing permission is the same as another error")
	}
}

// Exit codes of errors: 1 could be the exit code of a call, so the commands that follow one use 125.
func TestExitCodesOfErrors(t *testing.T) {
	t.Parallel()
	for _, e := range []struct {
		err  *exitError
		want string
	}{{&exitError{code: 7}, "exit code 7"}, {&exitError{code: 7, err: errors.New("because")}, "because"}} {
		if e.err.Error() != e.want || !errors.Is(e.err, e.err.err) && e.err.err != nil {
			t.Errorf("got %q", e.err.Error())
		}
	}
	for line, want := range map[string]int{"run": 125, "check": 125, "wait": 125, "logs": 1, "session exec": 125, "session shell": 125, "session start a b": 1, "nonsense": 1, "--nonsense": 1, "": 0, "--help": 0, "version --client": 0, "version": 1} {
		if _, _, code := command("", strings.Fields(line)...); code != want {
			t.Errorf("%q exits with %d, not %d", line, code, want)
		}
	}
}
