package mcpserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// clientFrom is an HTTP client whose connections come from the given loopback address.
func clientFrom(t *testing.T, address string) *http.Client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// initializeWith opens a session and returns the status of the answer.
func initializeWith(t *testing.T, ctx context.Context, client *http.Client, url, token string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(initialize))
	must(t, err)
	r.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

// Hundreds of invented tokens from one address leave the reviews of another address's user alone.
func TestAFloodOfInventedTokens(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	s := newSite(t, func(e *Endpoint) { e.API = g.config })
	attacker, user := clientFrom(t, "127.0.0.2"), clientFrom(t, "127.0.0.1")
	const requests = 300
	var tooMany, rejected atomic.Int32
	var flood sync.WaitGroup
	for n := range requests {
		flood.Go(func() {
			switch status, body := initializeWith(t, context.Background(), attacker, s.web.URL+"/mcp", fmt.Sprint(invented, n)); status {
			case http.StatusTooManyRequests:
				tooMany.Add(1)
			case http.StatusUnauthorized:
				rejected.Add(1)
			default:
				t.Errorf("%d %s", status, body)
			}
		})
	}
	wantTooMany := int32(requests - unknownLimits.RunningPerSource - unknownLimits.WaitingPerSource)
	eventually(t, "full queue of the attacker", func() bool { return tooMany.Load() == wantTooMany })
	g.awaitHeld(unknownLimits.RunningPerSource)
	if status, body := initializeWith(t, t.Context(), user, s.web.URL+"/mcp", s.user("agent")); status != http.StatusOK || !strings.Contains(body, "serverInfo") {
		t.Errorf("the user got %d %s", status, body)
	}
	if rejected.Load() != 0 {
		t.Errorf("%d reviews of the flood ended before the user was served", rejected.Load())
	}
	g.letAllThrough()
	flood.Wait()
	if want := int32(requests) - wantTooMany; rejected.Load() != want {
		t.Errorf("%d invented tokens were rejected, want %d", rejected.Load(), want)
	}
}

// A user can't take other users' sessions by inventing namespaces, nor by creating users in a namespace.
func TestSessionsOfATenantLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(e *Endpoint) { e.MaxSessions, e.MaxSessionsPerTenant, e.MaxSessionsPerUser = 6, 4, 3 })
	open := func(token, namespace string) int {
		status, _, _ := s.request(http.MethodPost, "/mcp/"+namespace, initialize, "Authorization", "Bearer "+token)
		return status
	}
	opened := 0
	first, second := s.user("first"), s.user("second")
	for n := range 8 {
		for _, token := range []string{first, second} {
			if open(token, fmt.Sprintf("invented-%d", n)) == http.StatusOK {
				opened++
			}
		}
	}
	if opened != 4 {
		t.Errorf("the tenant has %d sessions", opened)
	}
	if status := open(newFixture(t).user("other"), "default"); status != http.StatusOK {
		t.Errorf("another tenant got %d", status)
	}
}

// Large requests whose bodies don't arrive hold back their user only.
func TestLargeRequestsOfOneUser(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	token, other := s.user("agent"), s.user("other")
	const large = maxRequestBytesPerUser / maxBody
	for range large {
		c, err := net.Dial("tcp", s.web.Listener.Addr().String())
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", token, maxBody)
		must(t, err)
		// The server asks for the body once it has reserved the memory for it.
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || !strings.Contains(line, "100 Continue") {
			t.Fatalf("%q, %v", line, err)
		}
	}
	status, header, body := s.request(http.MethodPost, "/mcp", initialize, "Authorization", "Bearer "+token)
	if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
		t.Errorf("the user got %d %s", status, body)
	}
	if status, _, body := s.request(http.MethodPost, "/mcp", initialize, "Authorization", "Bearer "+other); status != http.StatusOK {
		t.Errorf("another user got %d %s", status, body)
	}
}

// Requests are counted by their size while they are served, so many small ones fit.
func TestRequestBytes(t *testing.T) {
	t.Parallel()
	for length, want := range map[int64]int64{-1: maxBody, 0: minRequestBytes, minRequestBytes + 1: minRequestBytes + 1, maxBody: maxBody, 1 << 40: maxBody} {
		if got := requestBytes(length); got != want {
			t.Errorf("a body of %d bytes counts as %d", length, got)
		}
	}
}

// Silent connections, from one address or from many, leave room for users; a user's connection stays.
func TestAFloodOfConnections(t *testing.T) {
	t.Parallel()
	for _, secured := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS: %t", secured), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			o, scheme := &HTTPOptions{}, "http"
			if secured {
				o.CertFile, o.KeyFile = writeCertificate(t, t.TempDir(), "localhost")
				scheme = "https"
			}
			s := serve(t, o, Endpoint{API: suite.Server().Config, Namespace: f.namespace}, func(o *HTTPOptions) { o.MaxConnections, o.MaxConnectionsPerAddress = 20, 6 })
			url, token, user := scheme+"://"+s.options.Address+"/mcp", f.user("agent"), clientFrom(t, "127.0.0.1")
			reused := false
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }})
			if status, body := initializeWith(t, ctx, user, url, token); status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
			for i := range 60 {
				// The first flood comes from the user's own address.
				floodFrom(t, fmt.Sprintf("127.0.0.%d", 1+i/10), s.options.Address)
			}
			if status, body := initializeWith(t, ctx, user, url, token); status != http.StatusOK || !reused {
				t.Errorf("the user got %d %s; the connection is the same: %t", status, body, reused)
			}
			if status, body := initializeWith(t, t.Context(), clientFrom(t, "127.0.0.99"), url, token); status != http.StatusOK {
				t.Errorf("from a new address: %d %s", status, body)
			}
		})
	}
}

// A tenant whose token is valid can't keep others out by holding all connections: the one that has most loses one.
func TestATenantCannotHoldAllConnections(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := serve(t, &HTTPOptions{}, Endpoint{API: suite.Server().Config, Namespace: f.namespace}, func(o *HTTPOptions) { o.MaxConnections, o.MaxConnectionsPerAddress = 8, 4 })
	url, greedy, other := "http://"+s.options.Address+"/mcp", f.user("agent"), newFixture(t).user("other")
	// Of one address and of several, and each stays open.
	for i := range 12 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+greedy)
		if answer, err := clientFrom(t, fmt.Sprintf("127.0.0.%d", 1+i/5)).Do(r); err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			must(t, answer.Body.Close())
		}
	}
	reused := false
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }})
	user := clientFrom(t, "127.0.0.1")
	if status, body := initializeWith(t, ctx, user, url, other); status != http.StatusOK {
		t.Errorf("another tenant got %d %s", status, body)
	}
	if status, body := initializeWith(t, ctx, clientFrom(t, "127.0.0.99"), url, greedy); status != http.StatusOK {
		t.Errorf("from another address, the tenant got %d %s", status, body)
	}
	if status, body := initializeWith(t, ctx, user, url, other); status != http.StatusOK || !reused {
		t.Errorf("then, another tenant got %d %s; the connection is the same: %t", status, body, reused)
	}
}

// floodFrom opens a connection that stays silent.
func floodFrom(t *testing.T, from, to string) {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.DialContext(t.Context(), "tcp", to)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
}

// Silent connections to the port for health checks don't keep the kubelet from checking.
func TestAFloodOfHealthConnections(t *testing.T) {
	t.Parallel()
	newFixture(t)
	s := serve(t, &HTTPOptions{}, Endpoint{API: suite.Server().Config, Namespace: "default"})
	for i := range 200 {
		floodFrom(t, fmt.Sprintf("127.0.0.%d", 2+i/20), s.options.HealthAddress)
	}
	if status := get(t, "http://"+s.options.HealthAddress+"/healthz"); status != http.StatusOK {
		t.Errorf("the check got %d", status)
	}
}

// The server closes a surplus connection at once: its client doesn't wait for a timeout.
func TestSurplusConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	newFixture(t)
	s := serve(t, &HTTPOptions{}, Endpoint{API: suite.Server().Config, Namespace: "default"}, func(o *HTTPOptions) { o.MaxConnections, o.MaxConnectionsPerAddress = 8, 2 })
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	first, err := dialer.DialContext(t.Context(), "tcp", s.options.Address)
	must(t, err)
	defer first.Close()
	for range 2 {
		floodFrom(t, "127.0.0.2", s.options.Address)
	}
	must(t, first.SetReadDeadline(time.Now().Add(testTimeout)))
	if _, err := bufio.NewReader(first).ReadByte(); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the oldest connection: %v", err)
	}
}
