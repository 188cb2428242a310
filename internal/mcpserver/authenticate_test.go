package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"

	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/serving/limits"
)

// gate stands in front of the tests' API server, as its administrator. It counts the token reviews, and holds those of invented tokens back
// until the test lets them through.
type gate struct {
	t      *testing.T
	config *rest.Config

	mu      sync.Mutex
	reviews map[string]int
	held    []chan struct{}
	open    bool
}

// invented starts the tokens that the gate holds back.
const invented = "invented-"

func newGate(t *testing.T) *gate {
	t.Helper()
	config := rest.CopyConfig(suite.Need(t).Config)
	target, err := url.Parse(config.Host)
	must(t, err)
	config.NextProtos = []string{"http/1.1"}
	transport, err := rest.TransportFor(config)
	must(t, err)
	g := &gate{t: t, reviews: map[string]int{}}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			g.review(r)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { g.letAllThrough(); server.Close() })
	g.config = &rest.Config{Host: server.URL}
	return g
}

func (g *gate) review(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	review := &authenticationv1.TokenReview{}
	if err := errors.Join(err, json.Unmarshal(body, review)); err != nil {
		g.t.Errorf("a review: %v", err)
	}
	token := review.Spec.Token
	g.mu.Lock()
	g.reviews[token]++
	if g.open || !strings.HasPrefix(token, invented) {
		g.mu.Unlock()
		return
	}
	through := make(chan struct{})
	g.held = append(g.held, through)
	g.mu.Unlock()
	select {
	case <-through:
	case <-r.Context().Done():
	}
}

// awaitHeld waits until the gate holds n reviews back.
func (g *gate) awaitHeld(n int) {
	g.t.Helper()
	eventually(g.t, fmt.Sprintf("%d reviews at the gate", n), func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.held) == n
	})
}

// letThrough lets the oldest review through.
func (g *gate) letThrough() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.held[0])
	g.held = g.held[1:]
}

func (g *gate) letAllThrough() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
	for _, through := range g.held {
		close(through)
	}
	g.held = nil
}

func (g *gate) reviewsOf(token string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reviews[token]
}

// authenticatorTest sends requests from any address to an authenticator behind a gate.
type authenticatorTest struct {
	*fixture
	*gate
	*authenticator
	flood sync.WaitGroup
}

func newAuthenticatorTest(t *testing.T, proxies ...string) *authenticatorTest {
	t.Helper()
	a := &authenticatorTest{fixture: newFixture(t), gate: newGate(t)}
	trusted, err := limits.ParseProxies(proxies)
	must(t, err)
	reviewer, err := identity.NewImpersonator(a.gate.config, []string{defaultAudience})
	must(t, err)
	a.authenticator = newAuthenticator(reviewer, &limits.Sources{Proxies: trusted})
	t.Cleanup(func() { a.letAllThrough(); a.flood.Wait() })
	return a
}

// send authenticates one request.
func (a *authenticatorTest) send(from, token string, headers ...string) (*identity.Requester, error) {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/mcp", nil)
	r.RemoteAddr = from + ":1234"
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return a.authenticate(r)
}

// sendInvented sends a request with an invented token in the background.
func (a *authenticatorTest) sendInvented(from string, n int) {
	a.flood.Go(func() {
		_, err := a.send(from, fmt.Sprintf("%s%s-%d", invented, from, n))
		if err == nil {
			a.fixture.t.Errorf("an invented token from %s was accepted", from)
		}
	})
}

// awaitWaiting waits until n requests wait in the queue for unknown tokens.
func (a *authenticatorTest) awaitWaiting(n int) {
	a.fixture.t.Helper()
	eventually(a.fixture.t, fmt.Sprintf("%d waiting requests", n), func() bool {
		return a.unknownTokens.Waiting() == n
	})
}

// occupy fills every place for reviews, from as many addresses as that takes, with more waiting from each.
func (a *authenticatorTest) occupy() (waiting int) {
	a.fixture.t.Helper()
	addresses := unknownLimits.Running / unknownLimits.RunningPerSource
	for i := range addresses {
		for n := range unknownLimits.RunningPerSource + 2 {
			a.sendInvented(fmt.Sprintf("192.0.2.%d", i), n)
		}
	}
	a.awaitHeld(unknownLimits.Running)
	a.awaitWaiting(2 * addresses)
	return 2 * addresses
}

// A user whose token was accepted before is served while every place for unknown tokens is taken, also when the token
// needs a new review.
func TestKnownUsersDoNotWaitForUnknownTokens(t *testing.T) {
	t.Parallel()
	a := newAuthenticatorTest(t)
	token := a.user("agent")
	a.identities = identity.NewAccepted(0, 10, 10)
	if _, err := a.send("198.51.100.1", token); err != nil {
		t.Fatal(err)
	}
	a.occupy()
	for range 3 {
		if found, err := a.send("198.51.100.1", token); err != nil || found.User != "system:serviceaccount:"+a.namespace+":agent" {
			t.Fatalf("%+v, %v", found, err)
		}
	}
	a.awaitHeld(unknownLimits.Running)
	if got := a.reviewsOf(token); got != 4 {
		t.Errorf("%d reviews of the token", got)
	}
}

// A new user gets the first place that becomes free after one turn of each flooding address.
func TestANewUserGetsATurn(t *testing.T) {
	t.Parallel()
	a := newAuthenticatorTest(t)
	token := a.user("agent")
	waiting := a.occupy()
	served := make(chan error, 1)
	go func() {
		_, err := a.send("198.51.100.1", token)
		served <- err
	}()
	a.awaitWaiting(waiting + 1)
	turns := 0
	for sources := unknownLimits.Running / unknownLimits.RunningPerSource; turns <= sources; turns++ {
		a.letThrough()
		a.awaitHeld(unknownLimits.Running)
		select {
		case err := <-served:
			must(t, err)
			return
		default:
		}
		if a.reviewsOf(token) > 0 {
			must(t, <-served)
			return
		}
	}
	t.Errorf("not served after %d reviews of %d addresses", turns, unknownLimits.Running/unknownLimits.RunningPerSource)
}

// Requests with the same new token share its reviews.
func TestConcurrentRequestsShareAReview(t *testing.T) {
	t.Parallel()
	a := newAuthenticatorTest(t)
	token := a.user("agent")
	var running sync.WaitGroup
	for range 50 {
		running.Go(func() {
			if _, err := a.send("198.51.100.1", token); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if got := a.reviewsOf(token); got < 1 || got > unknownLimits.RunningPerSource {
		t.Errorf("%d reviews of one token", got)
	}
}

// A rejected token costs one review, however often it is sent, and from wherever.
func TestARejectedTokenIsRemembered(t *testing.T) {
	t.Parallel()
	a := newAuthenticatorTest(t)
	a.letAllThrough()
	const token = invented + "x"
	for n := range 10 {
		if _, err := a.send(fmt.Sprintf("192.0.2.%d", n%5), token); !isTokenError(err) {
			t.Fatal(err)
		}
	}
	if got := a.reviewsOf(token); got != 1 {
		t.Errorf("%d reviews", got)
	}
}

// Invented tokens evict nobody, however few places there are.
func TestInventedTokensEvictNobody(t *testing.T) {
	t.Parallel()
	a := newAuthenticatorTest(t)
	a.letAllThrough()
	a.identities = identity.NewAccepted(time.Hour, 2, 2)
	token := a.user("agent")
	if _, err := a.send("198.51.100.1", token); err != nil {
		t.Fatal(err)
	}
	for n := range 100 {
		if _, err := a.send(fmt.Sprintf("192.0.2.%d", n%5), fmt.Sprint(invented, n)); !isTokenError(err) {
			t.Fatal(err)
		}
	}
	if _, err := a.send("198.51.100.1", token); err != nil || a.reviewsOf(token) != 1 {
		t.Errorf("%v, %d reviews of the token", err, a.reviewsOf(token))
	}
}

// A revoked token is forgotten, and counts as unknown again.
func TestARevokedTokenIsForgotten(t *testing.T) {
	t.Parallel()
	a := newAuthenticatorTest(t)
	a.identities = identity.NewAccepted(0, 10, 10)
	token := a.user("agent")
	if _, err := a.send("198.51.100.1", token); err != nil {
		t.Fatal(err)
	}
	a.deleteAccount("agent")
	// API servers cache accepted tokens for a moment.
	eventually(t, "rejection of the token", func() bool {
		_, err := a.send("198.51.100.1", token)
		return isTokenError(err)
	})
	if a.identities.Len() != 0 {
		t.Errorf("%d tokens are known", a.identities.Len())
	}
}

// Behind a trusted proxy, clients count by their own addresses; without one, the header changes nothing.
func TestClientsBehindAProxy(t *testing.T) {
	t.Parallel()
	for _, trusted := range []bool{true, false} {
		t.Run(fmt.Sprintf("trusted: %t", trusted), func(t *testing.T) {
			t.Parallel()
			proxies := []string{}
			if trusted {
				proxies = []string{"10.0.0.1"}
			}
			a := newAuthenticatorTest(t, proxies...)
			held := 0
			for _, client := range []string{"192.0.2.1", "192.0.2.2"} {
				for n := range unknownLimits.RunningPerSource + 1 {
					a.flood.Go(func() { _, _ = a.send("10.0.0.1", fmt.Sprint(invented, client, n), "X-Forwarded-For", client) })
				}
				held += unknownLimits.RunningPerSource
			}
			if !trusted {
				held = unknownLimits.RunningPerSource
			}
			a.awaitHeld(held)
			a.awaitWaiting(2*(unknownLimits.RunningPerSource+1) - held)
			a.awaitHeld(held)
		})
	}
}

// A request that ends while it waits leaves its place.
func TestARequestThatEndsLeavesTheQueue(t *testing.T) {
	t.Parallel()
	a := newAuthenticatorTest(t)
	waiting := a.occupy()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", nil)
		r.Header.Set("Authorization", "Bearer "+invented+"waiting")
		_, err := a.authenticate(r)
		ended <- err
	}()
	a.awaitWaiting(waiting + 1)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	a.awaitWaiting(waiting)
	if a.reviewsOf(invented+"waiting") != 0 {
		t.Error("the token was reviewed")
	}
}
