package calls

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// withSubresource puts a handler before the API server: it serves what the aggregated API of the tests doesn't have, as that
// needs a pod. It returns a kubeconfig.
func withSubresource(f *plugintest.Fixture, part string, handler http.Handler) string {
	f.T.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", f.Kubeconfig)
	if err != nil {
		f.T.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		f.T.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		f.T.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, part) {
			handler.ServeHTTP(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	f.T.Cleanup(server.Close)
	path := filepath.Join(f.T.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}],
contexts: [{name: c, context: {cluster: c}}]}`, server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.T.Fatal(err)
	}
	return path
}

// inputs is a call's standard input.
type inputs struct {
	mu     sync.Mutex
	got    bytes.Buffer
	closed chan struct{}
}

func (i *inputs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	right := strconv.Itoa(i.got.Len())
	if r.URL.Query().Get("offset") != right {
		w.Header().Set("Toolcall-Input-Offset", right)
		plugintest.Refuse(w, http.StatusConflict, "Conflict", "another offset")
		return
	}
	_, _ = io.Copy(&i.got, r.Body)
	w.Header().Set("Toolcall-Input-Offset", strconv.Itoa(i.got.Len()))
	if r.URL.Query().Get("eof") == "true" {
		close(i.closed)
	}
}

// backgroundCall makes a call that runs in the background of a session.
func backgroundCall(f *plugintest.Fixture, name string) *v1alpha1.ToolCall {
	f.T.Helper()
	f.ReadySession("dev")
	f.Run("run", "--session", "dev", "--background", "--detach", "--name", name, "--", "serve").Expect(f.T, 0)
	f.SetRunning(name, "pod")
	return f.Call(name)
}

// attach passes standard input on behind what was sent before, shows both streams, and exits as the call does.
func TestAttachToABackgroundCall(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	call := backgroundCall(f, "c")
	stdout, stderr := f.Writing(call, "before\n"), f.Outputs.Add(call, output.Stderr)
	_, _ = stderr.Write([]byte("oops\n"))
	in := &inputs{closed: make(chan struct{})}
	in.got.WriteString("sent before\n")
	kubeconfig := withSubresource(f, "/namespaces/"+f.Namespace+"/toolsessions/dev/proxy/input", in)
	done := make(chan plugintest.Printed, 1)
	go func() {
		out, errs, code := plugintest.Run("hello\n", "--kubeconfig", kubeconfig, "-n", f.Namespace, "attach", "c")
		done <- plugintest.Printed{Out: out, Err: errs, Code: code}
	}()
	<-in.closed
	_, _ = stdout.Write([]byte("after\n"))
	stdout.Finish()
	stderr.Finish()
	f.End("c", plugintest.WithOutput(v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonNonZeroExit, ExitCode: ptr.To(int32(7))}, "before\nafter\n", "oops\n"))
	if got := <-done; got != (plugintest.Printed{Out: "before\nafter\n", Err: "oops\n", Code: 7}) || in.got.String() != "sent before\nhello\n" {
		t.Errorf("got %+v, the call got %q", got, in.got.String())
	}
}

// Standard input that isn't wanted, or not taken, doesn't keep anybody from watching.
func TestAttachWithoutInput(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	backgroundCall(f, "c")
	f.Detached("plain")
	f.End("plain", plugintest.WithOutput(plugintest.Succeeded(), "out\n", ""))
	f.End("c", plugintest.WithOutput(plugintest.Succeeded(), "out\n", ""))
	refused := make(chan struct{})
	var once sync.Once
	kubeconfig := withSubresource(f, "/proxy/input", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		plugintest.Refuse(w, http.StatusForbidden, "Forbidden", "toolsessions.subresources.toolcall.dev is forbidden")
		once.Do(func() { close(refused) })
	}))
	for _, args := range [][]string{{"attach", "plain"}, {"attach", "c", "--stdin=false"}, {"attach", "c"}} {
		if out, errs, code := plugintest.Run("hello\n", append([]string{"--kubeconfig", kubeconfig, "-n", f.Namespace}, args...)...); out != "out\n" || errs != "" || code != 0 {
			t.Errorf("%q: %q, %q, %d", args, out, errs, code)
		}
	}
	f.Run("run", "--session", "dev", "--background", "--detach", "--name", "other", "--", "serve").Expect(t, 0)
	f.SetRunning("other", "pod")
	errs := &signalWriter{wrote: make(chan struct{}, 100)}
	code := make(chan int, 1)
	go func() {
		streams := genericiooptions.IOStreams{In: strings.NewReader("hello\n"), Out: io.Discard, ErrOut: errs}
		code <- plugintest.TestCLI(streams).Execute([]string{"--kubeconfig", kubeconfig, "-n", f.Namespace, "attach", "other"})
	}()
	<-refused
	<-errs.wrote
	f.End("other", plugintest.Succeeded())
	if got := <-code; got != 0 || !strings.Contains(errs.String(), "note: standard input isn't passed on: it needs permission to create toolsessions/proxy") {
		t.Errorf("exit code %d, %q", got, errs.String())
	}
	f.Run("attach", "none").Expect(t, 125, "call none not found")
	f.Run("attach").Expect(t, 125, "specify the name of one call")
}

// Ctrl-C leaves the call alone, and says how to stop it.
func TestAttachDetaches(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("c")
	f.Writing(f.Call("c"), "line\n")
	f.SetRunning("c", "pod")
	out := &signalWriter{wrote: make(chan struct{}, 100)}
	c := plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: io.Discard})
	*c.Flags.KubeConfig, *c.Flags.Namespace = f.Kubeconfig, f.Namespace
	cluster, err := c.Connect()
	if err != nil {
		t.Fatal(err)
	}
	a := &attaching{Cluster: cluster, name: "c", stdin: true}
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		<-out.wrote
		interrupt()
	}()
	err = a.run(ctx)
	if exit, ok := err.(*cli.ExitError); !ok || exit.Code != cli.CodeCancelled || !strings.Contains(err.Error(), "to stop it, run kubectl toolcall cancel c -n "+f.Namespace) {
		t.Errorf("got %v", err)
	}
	if f.Call("c").Spec.Cancel {
		t.Error("the call was cancelled")
	}
	var errs bytes.Buffer
	code := plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: plugintest.BrokenPipe, ErrOut: &errs}).Execute([]string{"--kubeconfig", f.Kubeconfig, "-n", f.Namespace, "attach", "c"})
	if code != cli.CodePipe || f.Call("c").Spec.Cancel {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
}
