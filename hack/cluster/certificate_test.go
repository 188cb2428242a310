package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
)

func TestACertificateIsValidForItsNamesAndItsOwnAuthority(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := certificate([]string{dir, "server", "server.ns.svc", "127.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	chain, err := os.ReadFile(filepath.Join(dir, "tls.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(chain)
	for name, want := range map[string]bool{"server": true, "server.ns.svc": true, "127.0.0.1": true, "other": false} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); (err == nil) != want {
			t.Errorf("verified for %s: %v", name, err)
		}
	}
}

func TestACertificateNeedsAName(t *testing.T) {
	t.Parallel()
	if err := certificate([]string{t.TempDir()}); err == nil {
		t.Error("a certificate for nobody was made")
	}
}
