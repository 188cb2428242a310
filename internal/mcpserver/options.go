package mcpserver

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
)

// HTTPOptions are what the command line says of the HTTP transport.
type HTTPOptions struct {
	Address, HealthAddress string
	CertFile, KeyFile      string
	InsecureHTTP           bool
	AllowedOrigins         []string

	MaxSessions, MaxSessionsPerUser int
	MaxCalls, MaxCallsPerUser       int
	SessionTimeout, DrainTimeout    time.Duration
}

// Bind defines the flags.
func (o *HTTPOptions) Bind(fs *pflag.FlagSet) {
	fs.StringVar(&o.Address, "address", "127.0.0.1:8443", "address to listen on for agents")
	fs.StringVar(&o.HealthAddress, "health-address", "127.0.0.1:8081", "address to serve /healthz, /readyz and /metrics on, without TLS")
	fs.StringVar(&o.CertFile, "tls-cert-file", "", "file with the certificate, read again when it changes")
	fs.StringVar(&o.KeyFile, "tls-private-key-file", "", "file with the certificate's private key")
	fs.BoolVar(&o.InsecureHTTP, "insecure-http", false, "serve without TLS on an address that others can reach: only where TLS is ended in front of the server, because requests carry credentials")
	fs.StringSliceVar(&o.AllowedOrigins, "allowed-origins", nil, "origins of web pages that may send requests, such as https://example.com; none when empty")
	fs.IntVar(&o.MaxSessions, "max-sessions", 512, "sessions that may be open at the same time")
	fs.IntVar(&o.MaxSessionsPerUser, "max-sessions-per-user", 64, "sessions that one user may have open in one namespace")
	fs.IntVar(&o.MaxCalls, "max-calls", 512, "calls that may run at the same time")
	fs.IntVar(&o.MaxCallsPerUser, "max-calls-per-user", 64, "calls of one user that may run at the same time")
	fs.DurationVar(&o.SessionTimeout, "session-timeout", time.Hour, "how long a session without requests stays open")
	fs.DurationVar(&o.DrainTimeout, "drain-timeout", 10*time.Second, "how long calls may go on when the server ends, before they are cancelled")
}

// Validate says what is missing or can't be.
func (o *HTTPOptions) Validate() error {
	wrong := []error{o.checkAddress()}
	if (o.CertFile == "") != (o.KeyFile == "") {
		wrong = append(wrong, errors.New("--tls-cert-file and --tls-private-key-file go together: set both or none"))
	}
	if o.CertFile != "" && o.InsecureHTTP {
		wrong = append(wrong, errors.New("--insecure-http serves without TLS: leave it out, or leave out the certificate"))
	}
	for name, value := range map[string]int{
		"max-sessions": o.MaxSessions, "max-sessions-per-user": o.MaxSessionsPerUser,
		"max-calls": o.MaxCalls, "max-calls-per-user": o.MaxCallsPerUser,
	} {
		if value < 1 {
			wrong = append(wrong, fmt.Errorf("--%s is %d, it must be at least 1", name, value))
		}
	}
	if o.SessionTimeout <= 0 || o.DrainTimeout < 0 {
		wrong = append(wrong, errors.New("--session-timeout must be above 0, and --drain-timeout not below"))
	}
	for _, origin := range o.AllowedOrigins {
		if u, err := url.Parse(origin); err != nil || u.Host == "" || u.Scheme+"://"+u.Host != strings.ToLower(origin) {
			wrong = append(wrong, fmt.Errorf("--allowed-origins: %q must be a scheme and a host, such as https://example.com", origin))
		}
	}
	return errors.Join(wrong...)
}

// checkAddress refuses to have tokens sent in the clear over a network.
func (o *HTTPOptions) checkAddress() error {
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil {
		return fmt.Errorf("--address %q: it must be HOST:PORT or :PORT: %w", o.Address, err)
	}
	if o.CertFile != "" || o.InsecureHTTP || host == "localhost" {
		return nil
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("--address %s can be reached by others, and requests carry credentials: set --tls-cert-file and "+
		"--tls-private-key-file, or --insecure-http where TLS is ended in front of the server", o.Address)
}

// Endpoint is what the options say of the endpoint.
func (o *HTTPOptions) Endpoint(api *rest.Config, namespace string) Endpoint {
	return Endpoint{
		API: api, Namespace: namespace, AllowedOrigins: o.AllowedOrigins,
		MaxSessions: o.MaxSessions, MaxSessionsPerUser: o.MaxSessionsPerUser, SessionTimeout: o.SessionTimeout,
	}
}
