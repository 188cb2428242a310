package subresources

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"toolcall.dev/operator/internal/dispatch"
)

// replicaName is the name that a replica has for the others.
const replicaName = "replica.toolcall.dev"

// A certificate is used for a day, and valid for longer: connections that began with it go on, and clocks differ.
const (
	renewAfter = 24 * time.Hour
	validFor   = 7 * 24 * time.Hour
)

// certificate is what this replica shows to the API server and to other replicas. Each replica makes its own, in memory, and
// all have the same authority: the operator's identity.
type certificate struct {
	identity *dispatch.Identity
	// service is the name under which the API server knows the server.
	service string
	clock   clock.PassiveClock

	mu      sync.Mutex
	current *tls.Certificate
	renew   time.Time
}

// get returns the certificate, and makes another one when it is time.
func (c *certificate) get() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if c.current != nil && now.Before(c.renew) {
		return c.current, nil
	}
	made, err := c.identity.Issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: replicaName},
		DNSNames:    []string{c.service, replicaName},
		NotAfter:    now.Add(validFor),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, now)
	if err != nil {
		return nil, fmt.Errorf("make the aggregated API's certificate: %w", err)
	}
	c.current, c.renew = &made, now.Add(renewAfter)
	return c.current, nil
}

// clientTLS is how this replica connects to another one.
func (c *certificate) clientTLS() *tls.Config {
	authority := x509.NewCertPool()
	authority.AddCert(c.identity.Authority())
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		RootCAs:              authority,
		ServerName:           replicaName,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.get() },
	}
}

// watchCertificate reads the certificate that somebody else makes.
func watchCertificate(dir string) (*certwatcher.CertWatcher, error) {
	given, err := certwatcher.New(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("read the aggregated API's certificate: %w", err)
	}
	return given, nil
}
