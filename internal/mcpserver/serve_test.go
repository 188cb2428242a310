package mcpserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/serving"
	"toolcall.dev/operator/internal/testing/address"
)

// writeCertificate creates a certificate for a name, and replaces the files atomically, as the kubelet does.
func writeCertificate(t *testing.T, dir, name string) (certFile, keyFile string) {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey(name, []net.IP{net.ParseIP("127.0.0.1")}, nil)
	must(t, err)
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for file, data := range map[string][]byte{certFile: cert, keyFile: key} {
		must(t, os.WriteFile(file+".new", data, 0o600))
		must(t, os.Rename(file+".new", file))
	}
	return certFile, keyFile
}

// runningServer is a server that runs like that of the command line.
type runningServer struct {
	options *HTTPOptions
	server  *Server
	stop    context.CancelFunc
	ended   chan error
}

func serve(t *testing.T, o *HTTPOptions, endpoint Endpoint, change ...func(*HTTPOptions)) *runningServer {
	t.Helper()
	o.Address, o.HealthAddress = address.Free(t), address.Free(t)
	ctx, cancel := context.WithCancel(context.Background())
	server := newTestServer(t, nil, 8)
	s := &runningServer{options: o, server: server, stop: cancel, ended: make(chan error, 1)}
	o.MaxSessions, o.MaxSessionsPerTenant, o.MaxSessionsPerUser, o.SessionTimeout = 8, 8, 8, time.Minute
	o.MaxConnections, o.MaxConnectionsPerAddress = 64, 64
	for _, c := range change {
		c(o)
	}
	endpoint.HTTPOptions = *o
	go func() { s.ended <- Serve(ctx, server, endpoint) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-s.ended:
		case <-time.After(testTimeout):
			t.Error("the server didn't end")
		}
	})
	eventually(t, "readiness", func() bool { return get(t, "http://"+o.HealthAddress+"/readyz") == http.StatusOK })
	return s
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s after %s", what, testTimeout)
		}
	}
}

// get returns the status of the response, 0 if there is none.
func get(t *testing.T, url string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	must(t, err)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

// The server reloads a replaced certificate, and doesn't answer requests without TLS.
func TestTheCertificateIsReloaded(t *testing.T) {
	t.Parallel()
	newFixture(t)
	dir := t.TempDir()
	o := &HTTPOptions{}
	o.CertFile, o.KeyFile = writeCertificate(t, dir, "first")
	s := serve(t, o, Endpoint{API: suite.Server().Config, Namespace: "default"})
	serves := func(name string) bool {
		c, err := tls.Dial("tcp", s.options.Address, &tls.Config{InsecureSkipVerify: true})
		must(t, err)
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].VerifyHostname(name) == nil
	}
	if !serves("first") {
		t.Error("the certificate is another one")
	}
	writeCertificate(t, dir, "second")
	eventually(t, "new certificate", func() bool { return serves("second") })
	if status := get(t, "http://"+s.options.Address+"/mcp"); status != http.StatusBadRequest {
		t.Errorf("without TLS: %d", status)
	}
	if _, err := tls.Dial("tcp", s.options.Address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is accepted")
	}
}

// A client that verifies the certificate can call tools over HTTP/2.
func TestCallsOverTLS(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(echo)
	o := &HTTPOptions{}
	o.CertFile, o.KeyFile = writeCertificate(t, t.TempDir(), "localhost")
	s := serve(t, o, Endpoint{API: suite.Server().Config, Namespace: f.namespace})
	pem, err := os.ReadFile(o.CertFile)
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	token := f.user("agent", runsCalls())
	session, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: "https://" + s.options.Address + "/mcp", HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+token)
			answer, err := transport.RoundTrip(r)
			if err == nil && answer.ProtoMajor != 2 {
				err = fmt.Errorf("answered over %s", answer.Proto)
			}
			return answer, err
		})},
	}, &mcp.ClientSessionOptions{ProtocolVersion: withSessions})
	must(t, err)
	defer session.Close()
	if answer, result := use(t, session, "run_command", fields{"command": "hello"}); answer.IsError || result.Output != "hello" {
		t.Errorf("%+v", result)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answerLate lets time pass between the end of a tool and its answer.
func answerLate(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, req)
		if method == "tools/call" {
			time.Sleep(100 * time.Millisecond)
		}
		return result, err
	}
}

// A server that stops lets running calls finish within the drain timeout, and cancels and answers the rest.
func TestDrain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		drain time.Duration
		// finishes is true for a call that finishes once the server stops.
		finishes bool
		want     string
	}{
		"a call that finishes in time": {time.Minute, true, "[reason: Completed, "},
		"a call that doesn't":          {time.Second, false, "[reason: CancelRequested, "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.operate(untilCancelled)
			s := serve(t, &HTTPOptions{DrainTimeout: test.drain}, Endpoint{API: suite.Server().Config, Namespace: f.namespace})
			s.server.mcp.AddReceivingMiddleware(answerLate)
			url, token := "http://"+s.options.Address+"/mcp", f.user("agent", runsCalls())
			id := post(t, url, token, "", initialize).header.Get(sessionHeader)
			waiting := make(chan struct{})
			go func() { defer close(waiting); listen(t, url, token, id) }()
			answered := make(chan string, 1)
			go func() {
				answered <- post(t, url, token, id, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"x"}}}`).body
			}()
			call := f.only("created", func(*v1alpha1.ToolCall) bool { return true })
			s.stop()
			eventually(t, "end of readiness", func() bool {
				return get(t, "http://"+s.options.HealthAddress+"/readyz") == http.StatusServiceUnavailable
			})
			if test.finishes {
				f.finish(call)
			}
			if body := <-answered; !strings.Contains(body, test.want) {
				t.Errorf("answered: %s", body)
			}
			<-waiting
			if err := <-s.ended; err != nil {
				t.Errorf("the server ended with: %v", err)
			}
			s.ended <- nil
		})
	}
}

// finish lets a call succeed.
func (f *fixture) finish(call *v1alpha1.ToolCall) {
	call.Status = *echo(call)
	if err := f.admin.Status().Update(context.Background(), call); err != nil {
		f.t.Error(err)
	}
}

type answer struct {
	header http.Header
	body   string
}

func post(t *testing.T, url, token, session, body string) answer {
	t.Helper()
	return send(t, http.MethodPost, url, token, session, body)
}

// listen receives messages of the server until the stream ends.
func listen(t *testing.T, url, token, session string) {
	t.Helper()
	send(t, http.MethodGet, url, token, session, "")
}

func send(t *testing.T, method, url, token, session, body string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return answer{}
	}
	r.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if session != "" {
		r.Header.Set(sessionHeader, session)
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Errorf("%s: %v", method, err)
		return answer{}
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Errorf("%s: %v", method, err)
	}
	return answer{got.Header, string(text)}
}

// A server whose port is taken or whose certificate is missing fails at once, with the reason.
func TestAServerThatCannotStart(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	const free = "127.0.0.1:0"
	for name, test := range map[string]struct {
		options HTTPOptions
		want    string
	}{
		"a taken address":            {HTTPOptions{Flags: serving.Flags{Address: taken.Addr().String(), HealthAddress: free}}, "listen for agents"},
		"a taken address for health": {HTTPOptions{Flags: serving.Flags{Address: free, HealthAddress: taken.Addr().String()}}, "listen for health checks"},
		"a certificate not there":    {HTTPOptions{Flags: serving.Flags{Address: free, HealthAddress: free, CertFile: "/nonexistent/c", KeyFile: "/nonexistent/k"}}, "read the certificate"},
		"a certificate that is none": {HTTPOptions{Flags: serving.Flags{Address: free, HealthAddress: free, CertFile: "/dev/null", KeyFile: "/dev/null"}}, "read the certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := Serve(t.Context(), newTestServer(t, nil, 1), Endpoint{HTTPOptions: test.options, API: &rest.Config{}})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}
