package subresources

import (
	"crypto/x509"
	"testing"
	"time"

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
