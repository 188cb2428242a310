package console

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"toolcall.dev/operator/internal/serving"
)

// Options are the flags of the console.
type Options struct {
	serving.Flags
	// Server and CAFile lead to the API server. There is no kubeconfig: the console has no credentials.
	Server, CAFile string
	// Hosts are the names under which users reach the console.
	Hosts []string

	MaxConnections, MaxRequests, MaxRequestsPerToken int

	limits timeouts
}

// Bind defines the flags.
func (o *Options) Bind(fs *pflag.FlagSet) {
	o.Flags.Bind(fs, "browsers", "/healthz and /readyz")
	fs.StringVar(&o.Server, "server", "", "URL of the API server, such as https://kubernetes.default.svc")
	fs.StringVar(&o.CAFile, "certificate-authority", "", "file with the CA certificate of --server")
	fs.StringSliceVar(&o.Hosts, "hosts", []string{"localhost", "127.0.0.1", "::1"}, "names and addresses, without ports, under which users reach the console; requests for others are refused")
	fs.IntVar(&o.MaxConnections, "max-connections", 1024, "maximum number of open connections")
	fs.IntVar(&o.MaxRequests, "max-requests", 512, "maximum number of requests to the API server at the same time; watches and followed output count")
	fs.IntVar(&o.MaxRequestsPerToken, "max-requests-per-token", 64, "maximum number of them with the same token")
}

// Validate returns all errors of the flags.
func (o *Options) Validate() error {
	invalid := []error{o.Flags.Validate()}
	if u, err := url.Parse(o.Server); err != nil || u.Scheme != "https" || u.Host == "" {
		invalid = append(invalid, fmt.Errorf("--server=%q: must be the https:// URL of the API server, which gets the users' tokens", o.Server))
	}
	if len(o.Hosts) == 0 {
		invalid = append(invalid, errors.New("--hosts must name at least one host: requests for others are refused"))
	}
	for _, host := range o.Hosts {
		if _, _, err := net.SplitHostPort(host); err == nil || host == "" || strings.ContainsAny(host, "/*[] ") {
			invalid = append(invalid, fmt.Errorf("--hosts: %q must be a name or an address, without scheme, port or brackets", host))
		}
	}
	return errors.Join(append(invalid, serving.CheckPositive(map[string]int{
		"max-connections": o.MaxConnections, "max-requests": o.MaxRequests, "max-requests-per-token": o.MaxRequestsPerToken,
	}))...)
}

// API returns the connection to the API server, without credentials.
func (o *Options) API() *rest.Config {
	return &rest.Config{Host: o.Server, TLSClientConfig: rest.TLSClientConfig{CAFile: o.CAFile}}
}
