package dispatch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/http"
	"testing"
	"time"
)

// A flood of connections that say nothing keeps nobody out who has a certificate, and closes nobody's connection who is in.
func TestTheGateStaysOpenInAFlood(t *testing.T) {
	identity, err := NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	issue := func(usage x509.ExtKeyUsage) tls.Certificate {
		c, err := identity.Issue(&x509.Certificate{
			Subject: pkix.Name{CommonName: "x"}, DNSNames: []string{"x"}, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{usage},
		}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	pool := x509.NewCertPool()
	pool.AddCert(identity.Authority())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gate := NewGate(listener)
	server := &http.Server{
		Handler:   http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		ConnState: gate.ConnState,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{issue(x509.ExtKeyUsageServerAuth)},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		},
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(gate, "", "") }()
	defer func() {
		server.Close()
		<-served
	}()
	for _, http2 := range []bool{false, true} {
		dials := 0
		transport := &http.Transport{ForceAttemptHTTP2: http2, TLSClientConfig: &tls.Config{
			RootCAs: pool, ServerName: "x", Certificates: []tls.Certificate{issue(x509.ExtKeyUsageClientAuth)},
		}, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			dials++
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}
		get := func() {
			t.Helper()
			response, err := (&http.Client{Transport: transport}).Get("https://" + listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
		}
		get()
		for range 2 * maxUnauthenticatedPerSource {
			conn, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
		get()
		if dials != 1 {
			t.Errorf("the connection was closed: %d were made", dials)
		}
		transport.CloseIdleConnections()
		get()
		transport.CloseIdleConnections()
	}
}
