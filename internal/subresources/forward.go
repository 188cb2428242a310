package subresources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// Leader says where the replica is that runners are connected to.
type Leader interface {
	// IsHere says that it is this one.
	IsHere() bool
	// Address is the leader's, with the port of the aggregated API; empty when there is no leader.
	Address(ctx context.Context) (string, error)
}

// forwarder passes requests on to the leader, over TLS with certificates on both sides, with the user in headers.
type forwarder struct {
	leader    Leader
	transport *http.Transport
	// moves is how often a connection of the API server is asked to go elsewhere.
	moves *rate.Limiter
}

// Bounds of a connection to the leader.
const (
	dialTimeout = 3 * time.Second
	// forwardBuffer is how much of an answer waits here for a client that doesn't take it. It is a part of what one request may
	// take of memory: without it, the library lets the leader send 4 MiB ahead.
	forwardBuffer = 32 << 10
	// movePause is between two connections that are asked to go elsewhere.
	movePause = time.Second
)

// newForwarder makes one that asks the API server to connect elsewhere now and then. An answer may begin when a large file has been read:
// that the leader is gone, pings say.
func newForwarder(leader Leader, own *certificate) *forwarder {
	return &forwarder{
		leader: leader, moves: rate.NewLimiter(rate.Every(movePause), 1),
		transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSClientConfig:     own.clientTLS(),
			TLSHandshakeTimeout: dialTimeout,
			IdleConnTimeout:     idleTimeout,
			ForceAttemptHTTP2:   true,
			DisableCompression:  true,
			HTTP2: &http.HTTP2Config{
				MaxReceiveBufferPerStream: forwardBuffer, SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second,
			},
		},
	}
}

// isNeeded says that the leader is another replica.
func (f *forwarder) isNeeded() bool { return f != nil && !f.leader.IsHere() }

// serve passes a request on, but not twice. Nothing has been written when it returns an error. An answer that breaks off does so here too,
// unless it is a follow, which goes on elsewhere.
func (f *forwarder) serve(q *exchange, isFollow bool) (failed error) {
	r, h := q.r, q.Header()
	if r.Header.Get(headerForwarded) != "" {
		return unavailable("this replica isn't the leader any more")
	}
	address, err := f.leader.Address(r.Context())
	if err != nil {
		return unavailable("the operator's leader can't be found: %s", err.Error())
	}
	if address == "" {
		return unavailable("the operator has no leader at the moment")
	}
	proxy := &httputil.ReverseProxy{
		Transport:     f.transport,
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = &url.URL{Scheme: "https", Host: address, Path: p.In.URL.Path, RawPath: p.In.URL.RawPath, RawQuery: p.In.URL.RawQuery}
			p.Out.Host = replicaName
			transport.SetAuthProxyHeaders(p.Out, q.who.GetName(), q.who.GetUID(), q.who.GetGroups(), q.who.GetExtra())
		},
		ModifyResponse: func(answer *http.Response) error {
			// What both say is said once.
			for name := range answer.Header {
				h.Del(name)
			}
			// An answer that didn't wait for the request's body is the end of it: the client sends no more, and the library would
			// wait for the rest.
			answer.Body = &endingBody{answer.Body, r.Body}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			failed = unavailable("the operator's leader doesn't answer: %s", err.Error())
		},
	}
	defer func() {
		broken := recover()
		if err, ok := broken.(error); broken != nil && (!isFollow || !ok || !errors.Is(err, http.ErrAbortHandler)) {
			panic(broken)
		}
	}()
	if f.moves.Allow() {
		// HTTP/2 says GOAWAY: the connection carries what is under way, and the API server makes another one for what comes. Sooner or
		// later that leads to the leader, and nothing needs to be passed on.
		h.Set("Connection", "close")
	}
	proxy.ServeHTTP(q.peer, r)
	return failed
}

// endingBody is an answer, at whose end nobody reads its request any more.
type endingBody struct {
	io.ReadCloser
	request io.Closer
}

// Read implements io.Reader.
func (b *endingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		_ = b.request.Close()
	}
	return n, err
}

// LabelLeaderAddress is the label of the operator's Lease that has the IP address of the replica that holds it.
const LabelLeaderAddress = "toolcall.dev/leader-address"

// LeaderLabels are the labels that a replica at an address puts on the Lease when it gets it. The value is the address in full
// with underscores instead of colons, which a label's value can't have.
func LeaderLabels(podIP string) (map[string]string, error) {
	ip, err := netip.ParseAddr(podIP)
	if err != nil {
		return nil, fmt.Errorf("the pod's address: %w", err)
	}
	return map[string]string{LabelLeaderAddress: strings.ReplaceAll(ip.WithZone("").StringExpanded(), ":", "_")}, nil
}

// leaderTTL is how long the answer to where the leader is counts, leaseTimeout how long the API server may take for it.
const (
	leaderTTL    = time.Second
	leaseTimeout = 5 * time.Second
)

// LeaseLeader is the replica that holds the operator's Lease.
type LeaseLeader struct {
	Leases coordinationv1client.LeaseInterface
	Name   string
	// Port is that of the aggregated API at every replica.
	Port int32
	// Elected is closed when this replica gets the Lease. One that loses it ends.
	Elected <-chan struct{}
	// Clock tells for how long an answer about the leader counts.
	Clock clock.PassiveClock

	asking singleflight.Group
	// Whoever is asking alone uses these: what was read last, and when.
	address string
	asked   time.Time
}

var _ Leader = &LeaseLeader{}

// IsHere says that this replica holds the Lease.
func (l *LeaseLeader) IsHere() bool {
	select {
	case <-l.Elected:
		return true
	default:
		return false
	}
}

// Address is where the replica is that holds the Lease; empty when none does. All who ask at the same time wait for one answer.
func (l *LeaseLeader) Address(ctx context.Context) (string, error) {
	answer := l.asking.DoChan(l.Name, func() (any, error) { return l.read(context.WithoutCancel(ctx)) })
	select {
	case a := <-answer:
		return a.Val.(string), a.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// read reads the Lease, unless it was read a moment ago.
func (l *LeaseLeader) read(ctx context.Context) (string, error) {
	if !l.asked.IsZero() && l.Clock.Since(l.asked) < leaderTTL {
		return l.address, nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	lease, err := l.Leases.Get(ctx, l.Name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get the operator's Lease: %w", err)
	}
	l.asked = l.Clock.Now()
	l.address = addressOf(lease, l.Port, l.asked)
	return l.address, nil
}

// addressOf reads the Lease. Nobody holds one that wasn't renewed in time.
func addressOf(lease *coordinationv1.Lease, port int32, now time.Time) string {
	spec := &lease.Spec
	if ptr.Deref(spec.HolderIdentity, "") == "" || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
		return ""
	}
	if now.After(spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds) * time.Second)) {
		return ""
	}
	ip, err := netip.ParseAddr(strings.ReplaceAll(lease.Labels[LabelLeaderAddress], "_", ":"))
	if err != nil {
		return ""
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(int(port)))
}
