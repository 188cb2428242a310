package dispatch

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"toolcall.dev/operator/internal/fair"
)

const (
	// helloTimeout is how long a peer may take for the handshake and its hello, and listTimeout for the calls that follow it, with the
	// wait for room.
	helloTimeout = 5 * time.Second
	listTimeout  = 2 * time.Minute
	// acceptRetry is the wait before another connection is accepted when the machine has no resources for one.
	acceptRetry = 100 * time.Millisecond
)

// Server accepts runners. Run it on one replica at a time: the one that holds the lease.
//
// Nobody can keep others out. Connections are bounded in number by source address and namespace, and in time until
// their hello; they last no longer than the Job or the call that they are for; handshakes of different sources take
// turns; results wait for room in memory before they are read; no caller of a Runner waits for a runner to read.
type Server struct {
	Hub *Hub
	// Identity is whose certificate runners are shown, and whose tokens they have.
	Identity *Identity
	// Records has the Jobs and calls that hellos name. Without it, the token alone counts.
	Records *Records
	Log     logr.Logger
}

// acceptor is a Server at work.
type acceptor struct {
	*Server
	tls             *tls.Config
	unauthenticated *unauthenticated
	handshakes      *fair.Turns[netip.Addr]
	records         *recordKeeper
	runners         quota
	results         resultBudgets
	helloTimeout    time.Duration
	connections     sync.WaitGroup
}

// Serve accepts connections until the context ends, then closes all of them and returns nil.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	a, err := newAcceptor(s)
	if err != nil {
		return err
	}
	return a.serve(ctx, listener)
}

func newAcceptor(s *Server) (*acceptor, error) {
	conf, err := s.Identity.ServerTLS(time.Now())
	if err != nil {
		return nil, err
	}
	// Half of the processors: the rest of the operator needs some too.
	handshakes := int64(max(1, runtime.GOMAXPROCS(0)/2))
	return &acceptor{
		Server: s, tls: conf, unauthenticated: newUnauthenticated(), runners: newQuota(maxRunners, maxRunnersPerSource, maxRunnersPerNamespace),
		results: newResultBudgets(), helloTimeout: helloTimeout,
		records: newRecordKeeper(s.Records), handshakes: fair.NewTurns[netip.Addr](handshakes, handshakes),
	}, nil
}

func (a *acceptor) serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	defer a.connections.Wait()
	defer cancel()
	if a.Records != nil {
		a.connections.Go(func() { a.sweepForever(ctx) })
	}
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case isExhausted(err):
			a.Log.Error(err, "A connection can't be accepted yet")
			pause(ctx, acceptRetry)
		case err != nil:
			return fmt.Errorf("accept runners: %w", err)
		default:
			a.accept(ctx, conn)
		}
	}
}

// isExhausted says whether accepting may work again when other connections end.
func isExhausted(err error) bool {
	known := []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED}
	return slices.ContainsFunc(known, func(one error) bool { return errors.Is(err, one) })
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// accept gives a connection its place and its time, and serves it in the background.
func (a *acceptor) accept(ctx context.Context, raw net.Conn) {
	admission, cancel := context.WithTimeout(ctx, a.helloTimeout)
	source, order := sourceOf(raw), a.Hub.nextOrder()
	c := a.unauthenticated.add(source, time.Now(), cancel)
	if c == nil {
		cancel()
		raw.Close()
		return
	}
	a.connections.Go(func() {
		defer raw.Close()
		defer cancel()
		defer a.unauthenticated.remove(c)
		if err := a.admit(ctx, admission, raw, c, order); err != nil {
			a.Log.V(1).Info("Turned a connection away", "remote", raw.RemoteAddr().String(), "reason", err.Error())
		}
	})
}

// admit finds out who is there, and serves a runner to its end. An error says why the peer wasn't taken for one.
func (a *acceptor) admit(ctx, admission context.Context, raw net.Conn, c *candidate, order uint64) error {
	abort := func() { raw.Close() }
	defer context.AfterFunc(ctx, abort)()
	inTime := context.AfterFunc(admission, abort)
	defer inTime()
	conn, hello, err := a.greet(admission, raw, c.source)
	if err != nil {
		return err
	}
	peer := a.newConnection(ctx, conn, hello, abort)
	peer.order = order
	release := func() {}
	defer func() {
		// It counts until it has ended.
		peer.end()
		release()
	}()
	if err := a.verify(hello); err != nil {
		peer.turnAway(err)
		return err
	}
	switch err := a.lookUp(admission, peer.Runner); {
	case errors.Is(err, errUnknown):
		// It isn't told, as below.
		return err
	case err != nil:
		peer.turnAway(err)
		return err
	}
	place, err := a.runners.take(c.source, hello.Namespace, abort)
	if err != nil {
		// It isn't told: it tries again later, and a refusal would end one that waits for a call.
		return err
	}
	release = place
	if !inTime() {
		return errTimeout
	}
	a.unauthenticated.remove(c)
	return a.run(ctx, peer)
}

// run keeps the Runner in the hub while the runner is connected.
func (a *acceptor) run(ctx context.Context, peer *connection) error {
	runner := peer.Runner
	inTime := time.AfterFunc(listTimeout, peer.outbox.abort)
	if err := peer.receiveHeld(); err != nil || !inTime.Stop() {
		return fmt.Errorf("read the calls that the runner has: %w", cmp.Or(err, errTimeout))
	}
	if !a.Hub.add(runner) {
		return errTaken
	}
	// After it, the Runner isn't found by readers any more.
	defer endRequests(runner)
	defer a.Hub.remove(runner)
	err := peer.receive()
	if ctx.Err() == nil {
		a.Log.V(1).Info("A runner's connection ended", "pod", runner.hello.Namespace+"/"+runner.hello.Pod, "reason", err.Error())
	}
	return nil
}
