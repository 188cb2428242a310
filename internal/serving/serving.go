// Package serving is what servers share that get credentials of their users: the flags of their addresses and their
// certificate, the listener that shows it and bounds connections, the log of their errors, the server for health checks, and how all of that
// starts and ends; the token of a request, and answers whose clients stop reading.
package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"toolcall.dev/operator/internal/serving/limits"
)

// HeaderTimeout is how long a request's header may take.
const HeaderTimeout = 10 * time.Second

const (
	idleTimeout = 2 * time.Minute

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

// CheckPositive returns the errors of flags whose values, by their names, must be at least 1.
func CheckPositive(flags map[string]int) error {
	var invalid []error
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		if flags[name] < 1 {
			invalid = append(invalid, fmt.Errorf("--%s=%d: must be at least 1", name, flags[name]))
		}
	}
	return errors.Join(invalid...)
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

// Server is what Run serves.
type Server struct {
	// Users are whom the server listens for, as in Bind.
	Users string
	// HTTP is the server for them, of which Run sets what all servers have in common. Handler makes its handler, whose streams end with the
	// context.
	HTTP    *http.Server
	Handler func(ctx context.Context) (http.Handler, error)
	// MaxConnections and MaxPerSource bound the connections, in total and from one of the Sources.
	MaxConnections, MaxPerSource int
	Sources                      *limits.Sources
	// Metrics are nil where there are none.
	Metrics http.Handler
	// Ready returns why the server isn't ready; nil if it always is.
	Ready func() error
	// Stop ends the server for users.
	Stop func() error
	Log  *slog.Logger
}

// Run listens and serves until the context ends, or something fails.
func (f *Flags) Run(ctx context.Context, s *Server) error {
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", f.Address)
	if err != nil {
		return fmt.Errorf("listen for %s: %w", s.Users, err)
	}
	defer listener.Close()
	health, err := listen.Listen(ctx, "tcp", f.HealthAddress)
	if err != nil {
		return fmt.Errorf("listen for health checks: %w", err)
	}
	defer health.Close()
	requested := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	if s.HTTP.Handler, err = s.Handler(ctx); err != nil {
		return err
	}
	s.HTTP.IdleTimeout, s.HTTP.ConnContext = idleTimeout, limits.WithConnection
	s.HTTP.ErrorLog = log.New(newErrorLog(s.Log), "", 0)
	bounded := limits.NewConnections(listener, s.Sources, s.MaxConnections, s.MaxPerSource)
	secured, err := f.Secure(ctx, s.HTTP, bounded, func(watch func() error) { running.Go(func() { cancel(watch()) }) })
	if err != nil {
		return err
	}
	checks := newHealthServer(func() error {
		switch {
		case ctx.Err() != nil:
			return errors.New("shutting down")
		case s.Ready != nil:
			return s.Ready()
		default:
			return nil
		}
	}, s.Metrics)
	checks.ErrorLog = s.HTTP.ErrorLog
	running.Go(func() { cancel(checks.Serve(limits.ForHealth(health))) })
	running.Go(func() { cancel(s.HTTP.Serve(secured)) })
	s.Log.Info("serving "+s.Users, "address", listener.Addr().String(), "health", health.Addr().String(), "tls", f.CertFile != "")

	<-ctx.Done()
	err = s.Stop()
	_ = checks.Close()
	if requested.Err() == nil {
		return fmt.Errorf("serve: %w", context.Cause(ctx))
	}
	return err
}

// newHealthServer answers health checks: /readyz says why the server isn't ready. Metrics are nil where there are none.
func newHealthServer(ready func() error, metrics http.Handler) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
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
