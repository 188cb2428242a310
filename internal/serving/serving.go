// Package serving is what servers share that get credentials of their users: the flags of their addresses and their
// certificate, the listener that shows it, and the server for health checks.
package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

const (
	healthTimeout        = 10 * time.Second
	maxHealthHeaderBytes = 16 << 10
)

// Flags are those of the addresses and of the certificate.
type Flags struct {
	Address, HealthAddress string
	CertFile, KeyFile      string
	InsecureHTTP           bool
}

// Bind defines the flags. Users are whom the server listens for, and paths what it serves at the health address.
func (f *Flags) Bind(fs *pflag.FlagSet, users, paths string) {
	fs.StringVar(&f.Address, "address", "127.0.0.1:8443", "address to listen on for "+users)
	fs.StringVar(&f.HealthAddress, "health-address", "127.0.0.1:8081", "address to listen on for "+paths+", without TLS")
	fs.StringVar(&f.CertFile, "tls-cert-file", "", "file with the certificate; the server reloads it when it changes")
	fs.StringVar(&f.KeyFile, "tls-private-key-file", "", "file with the private key of the certificate")
	fs.BoolVar(&f.InsecureHTTP, "insecure-http", false, "serve without TLS on an address that other hosts can reach; requests carry credentials, so use it only behind a proxy that terminates TLS")
}

// Validate returns all errors of the flags. It is one if users would send their credentials over a network without TLS.
func (f *Flags) Validate() error {
	invalid := []error{f.checkAddress()}
	if (f.CertFile == "") != (f.KeyFile == "") {
		invalid = append(invalid, errors.New("--tls-cert-file and --tls-private-key-file must be set together"))
	}
	if f.CertFile != "" && f.InsecureHTTP {
		invalid = append(invalid, errors.New("--insecure-http serves without TLS: remove it, or remove the certificate"))
	}
	return errors.Join(invalid...)
}

func (f *Flags) checkAddress() error {
	host, _, err := net.SplitHostPort(f.Address)
	if err != nil {
		return fmt.Errorf("--address %q: must be HOST:PORT or :PORT: %w", f.Address, err)
	}
	if f.CertFile != "" || f.InsecureHTTP || host == "localhost" {
		return nil
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("--address %s: other hosts can reach this address, and requests carry credentials: set --tls-cert-file and "+
		"--tls-private-key-file, or set --insecure-http behind a proxy that terminates TLS", f.Address)
}

// Secure returns the server's listener with TLS, if there is a certificate. It passes the function that reloads the
// certificate until the context ends to start.
func (f *Flags) Secure(ctx context.Context, server *http.Server, l net.Listener, start func(func() error)) (net.Listener, error) {
	if f.CertFile == "" {
		return l, nil
	}
	watcher, err := certwatcher.New(f.CertFile, f.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	start(func() error {
		if err := watcher.Start(ctx); err != nil {
			return fmt.Errorf("watch the certificate: %w", err)
		}
		return nil
	})
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: watcher.GetCertificate, NextProtos: []string{"h2", "http/1.1"}}
	return tls.NewListener(l, server.TLSConfig), nil
}

// NewHealthServer answers health checks: /readyz fails unless the server is ready. Metrics are nil where there are none.
func NewHealthServer(ready *atomic.Bool, metrics http.Handler) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: healthTimeout, ReadTimeout: healthTimeout, WriteTimeout: healthTimeout, IdleTimeout: healthTimeout,
		MaxHeaderBytes: maxHealthHeaderBytes,
	}
}
