package plugin

import (
	"bytes"
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
)

// withSubresource puts a handler before the API server: it serves what the aggregated API of the tests doesn't have, as that
// needs a pod. It returns a kubeconfig.
func (f *fixture) withSubresource(part string, handler http.Handler) string {
	f.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
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
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, part) {
			handler.ServeHTTP(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	f.t.Cleanup(server.Close)
	path := filepath.Join(f.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}],
contexts: [{name: c, context: {cluster: c}}]}`, server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
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
		refuse(w, http.StatusConflict, "Conflict", "another offset")
		return
	}
	_, _ = io.Copy(&i.got, r.Body)
	w.Header().Set("Toolcall-Input-Offset", strconv.Itoa(i.got.Len()))
	if r.URL.Query().Get("eof") == "true" {
		close(i.closed)
	}
}

// backgroundCall makes a call that runs in the background of a session.
func (f *fixture) backgroundCall(name string) *v1alpha1.ToolCall {
	f.t.Helper()
	f.readySession("dev")
	f.run("run", "--session", "dev", "--background", "--detach", "--name", name, "--", "serve").expect(f.t, 0)
	f.setRunning(name, "pod")
	return f.call(name)
}

// attach passes standard input on behind what was sent before, shows both streams, and exits as the call does.
func TestAttachToABackgroundCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call := f.backgroundCall("c")
	stdout, stderr := f.writing(call, "before\n"), f.outputs.Add(call, output.Stderr)
	_, _ = stderr.Write([]byte("oops\n"))
	in := &inputs{closed: make(chan struct{})}
	in.got.WriteString("sent before\n")
	kubeconfig := f.withSubresource("/namespaces/"+f.namespace+"/toolsessions/dev/proxy/input", in)
	done := make(chan printed, 1)
	go func() {
		out, errs, code := command("hello\n", "--kubeconfig", kubeconfig, "-n", f.namespace, "attach", "c")
		done <- printed{out, errs, code}
	}()
	<-in.closed
	_, _ = stdout.Write([]byte("after\n"))
	stdout.Finish()
	stderr.Finish()
	f.end("c", withOutput(v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonNonZeroExit, ExitCode: ptr.To(int32(7))}, "before\nafter\n", "oops\n"))
	if got := <-done; got != (printed{"before\nafter\n", "oops\n", 7}) || in.got.String() != "sent before\nhello\n" {
		t.Errorf("got %+v, the call got %q", got, in.got.String())
	}
}

// Standard input that isn't wanted, or not taken, doesn't keep anybody from watching.
func TestAttachWithoutInput(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.backgroundCall("c")
	f.detached("plain")
	f.end("plain", withOutput(succeeded(), "out\n", ""))
	f.end("c", withOutput(succeeded(), "out\n", ""))
	refused := make(chan struct{})
	var once sync.Once
	kubeconfig := f.withSubresource("/proxy/input", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "Forbidden", "toolsessions.subresources.toolcall.dev is forbidden")
		once.Do(func() { close(refused) })
	}))
	for _, args := range [][]string{{"attach", "plain"}, {"attach", "c", "--stdin=false"}, {"attach", "c"}} {
		if out, errs, code := command("hello\n", append([]string{"--kubeconfig", kubeconfig, "-n", f.namespace}, args...)...); out != "out\n" || errs != "" || code != 0 {
			t.Errorf("%q: %q, %q, %d", args, out, errs, code)
		}
	}
	f.run("run", "--session", "dev", "--background", "--detach", "--name", "other", "--", "serve").expect(t, 0)
	f.setRunning("other", "pod")
	errs := &signalWriter{wrote: make(chan struct{}, 100)}
	code := make(chan int, 1)
	go func() {
		streams := genericiooptions.IOStreams{In: strings.NewReader("hello\n"), Out: io.Discard, ErrOut: errs}
		code <- newCLI(streams).execute([]string{"--kubeconfig", kubeconfig, "-n", f.namespace, "attach", "other"})
	}()
	<-refused
	<-errs.wrote
	f.end("other", succeeded())
	if got := <-code; got != 0 || !strings.Contains(errs.String(), "note: standard input isn't passed on: it needs permission to create toolsessions/proxy") {
		t.Errorf("exit code %d, %q", got, errs.String())
	}
	f.run("attach", "none").expect(t, 125, "call none not found")
	f.run("attach").expect(t, 125, "specify the name of one call")
}

// Ctrl-C leaves the call alone, and says how to stop it.
func TestAttachDetaches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("c")
	f.writing(f.call("c"), "line\n")
	f.setRunning("c", "pod")
	out := &signalWriter{wrote: make(chan struct{}, 100)}
	c := newCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: io.Discard})
	*c.flags.KubeConfig, *c.flags.Namespace = f.kubeconfig, f.namespace
	cluster, err := c.connect()
	if err != nil {
		t.Fatal(err)
	}
	a := &attaching{cli: c, cluster: cluster, name: "c", stdin: true, signals: make(chan os.Signal, 2)}
	go func() {
		<-out.wrote
		a.signals <- os.Interrupt
	}()
	err = a.run(t.Context())
	if exit, ok := err.(*exitError); !ok || exit.code != codeCancelled || !strings.Contains(err.Error(), "to stop it, run kubectl toolcall cancel c -n "+f.namespace) {
		t.Errorf("got %v", err)
	}
	if f.call("c").Spec.Cancel {
		t.Error("the call was cancelled")
	}
	var errs bytes.Buffer
	code := newCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: brokenPipe{}, ErrOut: &errs}).execute([]string{"--kubeconfig", f.kubeconfig, "-n", f.namespace, "attach", "c"})
	if code != codePipe || f.call("c").Spec.Cancel {
		t.Errorf("exit code %d, %s", code, errs.String())
	}
}
