// Package dial is the runner's end of the connection to the operator.
//
// It makes the runner's key, connects, proves who it is, and exchanges messages. It checks the operator's
// certificate against the one authority that the pod was given, and says nothing to a peer with another
// certificate. It is linked into every tool pod and imports the standard library and wire only. It does
// not start or stop processes.
package dial

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// Config is what the pod tells its runner.
type Config struct {
	// Endpoints are host:port pairs of the operator, tried in order.
	Endpoints []string
	// Hello is sent on every connection.
	Hello wire.Hello
	// DialContext opens a network connection; net.Dialer does it when nil.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)

	tls *tls.Config
}

// FromEnv reads the configuration from the variables that the operator put into the pod, and makes the key
// pair that ties this process to its call. The private key never leaves the process.
func FromEnv(getenv func(string) string) (*Config, error) {
	missing := func(name string) error {
		return fmt.Errorf("variable %s is missing: a runner is started by the operator", name)
	}
	for _, name := range []string{wire.EnvEndpoints, wire.EnvCA, wire.EnvToken, wire.EnvNamespace, wire.EnvJob, wire.EnvJobUID, wire.EnvPod, wire.EnvPodUID} {
		if getenv(name) == "" {
			return nil, missing(name)
		}
	}
	conf, err := clientTLS(getenv(wire.EnvCA))
	if err != nil {
		return nil, err
	}
	return &Config{
		Endpoints: strings.Split(getenv(wire.EnvEndpoints), ","),
		Hello: wire.Hello{
			Version: wire.Version, Namespace: getenv(wire.EnvNamespace),
			Call: getenv(wire.EnvCall), Pool: getenv(wire.EnvPool), Job: getenv(wire.EnvJob), JobUID: getenv(wire.EnvJobUID),
			Pod: getenv(wire.EnvPod), PodUID: getenv(wire.EnvPodUID),
			Node: getenv(wire.EnvNode), Token: getenv(wire.EnvToken),
		},
		tls: conf,
	}, nil
}

func clientTLS(ca string) (*tls.Config, error) {
	der, err := base64.StdEncoding.DecodeString(ca)
	if err != nil {
		return nil, fmt.Errorf("variable %s is not base64: %w", wire.EnvCA, err)
	}
	authority, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("variable %s holds no certificate: %w", wire.EnvCA, err)
	}
	own, err := selfSigned()
	if err != nil {
		return nil, fmt.Errorf("make the runner's key: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		RootCAs:      roots,
		ServerName:   wire.ServerName,
		Certificates: []tls.Certificate{own},
	}, nil
}

// selfSigned makes a certificate whose only use is to carry a public key: the operator looks at the key,
// not at names or dates. The dates are wide so that no clock can break it.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "runner"},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
