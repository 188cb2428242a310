package console

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"toolcall.dev/operator/internal/testing/apitest"
)

// lines is a log that a test reads while it is written.
type lines struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.text.Write(p)
	select {
	case l.written <- struct{}{}:
	default:
	}
	return n, err
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until the log has what matches, and returns the groups.
func (l *lines) await(t *testing.T, pattern string) []string {
	t.Helper()
	timeout := time.After(testTimeout)
	for {
		if found := regexp.MustCompile(pattern).FindStringSubmatch(l.String()); found != nil {
			return found
		}
		select {
		case <-l.written:
		case <-timeout:
			t.Fatalf("the log has no %s: %s", pattern, l)
		}
	}
}

// writeCertificate writes a certificate and its key.
func writeCertificate(t *testing.T) (certificate, key string) {
	t.Helper()
	made, err := apitest.NewCertificate("localhost", nil)
	must(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	must(t, err)
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	must(t, os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Certificate[0]}), 0o600))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
	return certificate, key
}

// running is a console that runs as the program does, over TLS.
type running struct {
	log *lines
	// page and health are the addresses.
	page, health string
	stop         context.CancelFunc
	ended        chan error
}

// run runs a console with room for 8 connections.
func run(t *testing.T, upstream http.HandlerFunc) *running {
	t.Helper()
	api := newUpstream(t, upstream)
	o := testOptions()
	o.Address, o.HealthAddress, o.MaxConnections = "127.0.0.1:0", "127.0.0.1:0", 8
	o.CertFile, o.KeyFile = writeCertificate(t)
	o.Server, o.CAFile = api.URL, filepath.Join(t.TempDir(), "ca.crt")
	must(t, os.WriteFile(o.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	r := &running{log: &lines{written: make(chan struct{}, 1)}, stop: stop, ended: make(chan error, 1)}
	go func() { r.ended <- Serve(ctx, o, slog.New(slog.NewTextHandler(r.log, nil))) }()
	found := r.log.await(t, `address=(\S+) health=(\S+) tls=true`)
	r.page, r.health = found[1], found[2]
	return r
}

// getter returns a function that sends requests with a token, over connections of their own.
func getter(t *testing.T) func(url string) *http.Response {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return func(url string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		must(t, err)
		request.Header.Set("Authorization", "Bearer secret-token")
		response, err := (&http.Client{Transport: transport}).Do(request)
		must(t, err)
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
}

// follows answers every request with a stream that goes on.
func follows(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// The program serves over TLS, says that it is healthy, and stops when it is told to, whoever follows what.
func TestServe(t *testing.T) {
	t.Parallel()
	console, get := run(t, follows), getter(t)
	for _, path := range []string{"/healthz", "/readyz"} {
		if got := get("http://" + console.health + path); got.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", path, got.StatusCode)
		}
	}
	if got := get("https://" + console.page + "/"); got.StatusCode != http.StatusOK || got.ProtoMajor != 2 || got.TLS.Version < tls.VersionTLS12 {
		t.Errorf("the page: %d over %s", got.StatusCode, got.Proto)
	}
	if _, err := tls.Dial("tcp", console.page, &tls.Config{ServerName: "localhost", RootCAs: x509.NewCertPool()}); err == nil {
		t.Error("a client that doesn't trust the certificate is served")
	}
	console.log.await(t, `level=WARN msg="serving failed.*TLS handshake error`)
	followed := get("https://" + console.page + logOf + "?follow=true")
	console.stop()
	if rest, err := io.ReadAll(followed.Body); err != nil || len(rest) > 0 {
		t.Errorf("what was followed ended with %q, %v", rest, err)
	}
	if err := <-console.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if strings.Contains(console.log.String(), "secret-token") || strings.Contains(console.log.String(), "toolcalls") {
		t.Errorf("the log has requests: %s", console.log)
	}
}

// Silent connections leave room for users long before they time out, and what a user follows goes on.
func TestAFloodOfConnections(t *testing.T) {
	t.Parallel()
	console := run(t, follows)
	followed := getter(t)("https://" + console.page + logOf + "?follow=true")
	for range 30 {
		silent, err := net.Dial("tcp", console.page)
		must(t, err)
		t.Cleanup(func() { silent.Close() })
	}
	began := time.Now()
	if got := getter(t)("https://" + console.page + "/"); got.StatusCode != http.StatusOK || time.Since(began) > 20*time.Second {
		t.Errorf("the page: %d after %s", got.StatusCode, time.Since(began))
	}
	console.stop()
	if _, err := io.ReadAll(followed.Body); err != nil {
		t.Errorf("what was followed ended with %v", err)
	}
}

func TestServeSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	certificate, key := writeCertificate(t)
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"an address that cannot be": {func(o *Options) { o.Address = "127.0.0.1:99999" }, "listen for browsers"},
		"no health address":         {func(o *Options) { o.HealthAddress = "x" }, "listen for health checks"},
		"no such certificate":       {func(o *Options) { o.CertFile = "none" }, "read the certificate"},
		"no such authority":         {func(o *Options) { o.CAFile = "none" }, "connect to the API server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := testOptions()
			o.Address, o.HealthAddress, o.MaxConnections, o.Server = "127.0.0.1:0", "127.0.0.1:0", 8, "https://api.test"
			o.CertFile, o.KeyFile = certificate, key
			c.change(o)
			if err := Serve(t.Context(), o, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
