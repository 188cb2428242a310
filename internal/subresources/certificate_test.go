package subresources

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

func TestTheCertificateIsRenewedBeforeItExpires(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	identity, err := dispatch.NewIdentity(clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	c := &certificate{identity: identity, service: "service.ns.svc", clock: clock}
	roots := x509.NewCertPool()
	roots.AddCert(identity.Authority())
	serials := map[string]bool{}
	for range 20 {
		shown, err := c.get()
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(shown.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		serials[leaf.SerialNumber.String()] = true
		for _, name := range []string{"service.ns.svc", replicaName} {
			options := x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: clock.Now()}
			if _, err := leaf.Verify(options); err != nil {
				t.Error(err)
			}
		}
		// Runners believe the same authority, for another name.
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: wire.ServerName, CurrentTime: clock.Now()}); err == nil {
			t.Error("the certificate is good for runners, too")
		}
		clock.Step(renewAfter / 2)
	}
	if len(serials) != 10 {
		t.Errorf("in 10 days there were %d certificates", len(serials))
	}
}

// write puts a certificate of an identity into a folder, as a mounted Secret has it.
func (g *givenCertificate) write(identity *dispatch.Identity) {
	g.t.Helper()
	made, err := identity.Issue(&x509.Certificate{DNSNames: []string{"service.ns.svc"}, NotAfter: time.Now().Add(time.Hour)}, time.Now())
	if err != nil {
		g.t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	if err != nil {
		g.t.Fatal(err)
	}
	// What reads them in between sees both or none.
	next := g.dir + "-next"
	err = errors.Join(os.MkdirAll(next, 0o700),
		os.WriteFile(filepath.Join(next, "tls.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Certificate[0]}), 0o600),
		os.WriteFile(filepath.Join(next, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600),
		os.RemoveAll(g.dir), os.Rename(next, g.dir))
	if err != nil {
		g.t.Fatal(err)
	}
}

type givenCertificate struct {
	t   *testing.T
	dir string
}

func TestACertificateThatSomebodyElseMakesIsForTheAPIServer(t *testing.T) {
	t.Parallel()
	g := &givenCertificate{t, filepath.Join(t.TempDir(), "tls")}
	own, first, second := newIdentity(t), newIdentity(t), newIdentity(t)
	g.write(first)
	given, err := watchCertificate(g.dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{certificate: &certificate{identity: own, service: "service.ns.svc", clock: clock.RealClock{}}, given: given}
	isBy := func(name string, by *dispatch.Identity) bool {
		shown, err := s.certificateFor(&tls.ClientHelloInfo{ServerName: name})
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(shown.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AddCert(by.Authority())
		_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return err == nil
	}
	if !isBy("service.ns.svc", first) || !isBy(replicaName, own) {
		t.Error("the API server or a replica is shown the other's certificate")
	}
	g.write(second)
	if err := given.ReadCertificate(); err != nil {
		t.Fatal(err)
	}
	if !isBy("service.ns.svc", second) || !isBy(replicaName, own) {
		t.Error("a certificate that was renewed isn't shown")
	}
	if _, err := watchCertificate(t.TempDir()); err == nil || !strings.Contains(err.Error(), "tls.crt") {
		t.Errorf("a folder without a certificate is %v", err)
	}
}

func newIdentity(t *testing.T) *dispatch.Identity {
	t.Helper()
	identity, err := dispatch.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return identity
}
