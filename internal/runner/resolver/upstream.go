package resolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// lookupTimeout bounds a lookup: the usual clients ask again after 5 s.
	lookupTimeout = 4500 * time.Millisecond
	// tryTimeout bounds what one nameserver may take. A lookup asks at least minTries times, and where there are fewer
	// nameservers, asks them again.
	tryTimeout = 1500 * time.Millisecond
	minTries   = 3
	// retryPause is the least time between two tries at one nameserver: one that starts needs a moment.
	retryPause = 100 * time.Millisecond
	// maxStrays is how many datagrams are passed over that don't answer the question. More may be somebody who guesses, and
	// the question is asked on a stream.
	maxStrays = 64
)

// upstream asks nameservers.
type upstream struct {
	servers []netip.AddrPort
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	// preferred is the index of the server that answered last.
	preferred atomic.Uint32
	failures  failures
}

var (
	errNoServer  = errors.New("there is no nameserver")
	errStrays    = errors.New("too many datagrams don't answer the question")
	errInTime    = errors.New("there is no answer in time")
	errTruncated = errors.New("the answer is truncated, and can't be had whole")
)

// lookup asks for the addresses or other records of a name, until a nameserver says what they are or that there are none.
func (u *upstream) lookup(ctx context.Context, name string, t dnsmessage.Type) (*found, error) {
	call := ctx
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	n := len(u.servers)
	first := int(u.preferred.Load())
	err := errNoServer
	for i := range max(n, minTries) {
		if n == 0 || ctx.Err() != nil {
			break
		}
		at := (first + i) % n
		var got *found
		began := time.Now()
		// In a second round EDNS may be what a nameserver, or something before it, is silent about.
		if got, err = u.ask(ctx, u.servers[at], exchange{name: name, kind: t, edns: i < n}); err == nil {
			u.preferred.Store(uint32(at))
			u.failures.note(name, t, got, nil)
			return got, nil
		}
		err = &lookupError{u.servers[at], err}
		u.noteFailure(call, name, t, err)
		if i+1 >= n && i+1 < minTries {
			pause(ctx, retryPause-time.Since(began))
		}
	}
	if n == 0 {
		u.noteFailure(call, name, t, err)
	}
	return nil, fmt.Errorf("look up %s: %w", name, err)
}

// noteFailure counts a try that failed, as the call may end before the lookup does. One that ends with the call didn't fail.
func (u *upstream) noteFailure(call context.Context, name string, t dnsmessage.Type, err error) {
	if call.Err() == nil {
		u.failures.note(name, t, nil, err)
	}
}

// extendedErrorOf is what RFC 8914 calls a failed lookup: of the network, or of nameservers that don't answer or refuse to.
func extendedErrorOf(err error) uint16 {
	var network net.Error
	if errors.As(err, &network) {
		return errorNetwork
	}
	return errorNoneReachable
}

// ask asks one nameserver, by a datagram and, if the answer has no room in one, on a stream.
func (u *upstream) ask(ctx context.Context, server netip.AddrPort, e exchange) (*found, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	got, err := u.exchange(ctx, server, &e)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, errInTime
	case err != nil:
		return nil, err
	case got.code != dnsmessage.RCodeSuccess && got.code != dnsmessage.RCodeNameError:
		return nil, fmt.Errorf("it answered %s", codeText(got.code))
	}
	return got, nil
}

// codes are what answers with an error are called elsewhere.
var codes = map[dnsmessage.RCode]string{
	dnsmessage.RCodeFormatError: "FORMERR", dnsmessage.RCodeServerFailure: "SERVFAIL",
	dnsmessage.RCodeNotImplemented: "NOTIMP", dnsmessage.RCodeRefused: "REFUSED",
}

func codeText(code dnsmessage.RCode) string {
	if text := codes[code]; text != "" {
		return text
	}
	return fmt.Sprintf("with the code %d", code)
}

func (u *upstream) exchange(ctx context.Context, server netip.AddrPort, e *exchange) (*found, error) {
	got, err := u.datagram(ctx, server, e)
	if err == nil && e.edns && got.refusesEDNS() {
		e.edns = false
		got, err = u.datagram(ctx, server, e)
	}
	if !errors.Is(err, errStrays) && (err != nil || !got.truncated) {
		return got, err
	}
	whole, err := u.stream(ctx, server, e)
	if err != nil && got != nil && !got.isEmpty() {
		return got, nil // of a nameserver that can't do streams, what came counts
	}
	return whole, err
}

// send asks on a connection that ends with the context.
func (u *upstream) send(ctx context.Context, network string, server netip.AddrPort, e *exchange) (net.Conn, func(), error) {
	query, err := e.newQuery()
	if err != nil {
		return nil, nil, err
	}
	conn, err := u.dial(ctx, network, server.String())
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	done := func() { stop(); _ = conn.Close() }
	if network == "tcp" {
		err = writeMessage(conn, query)
	} else {
		_, err = conn.Write(query)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return conn, done, nil
}

// datagram asks by UDP. The socket is connected, so the kernel passes on only what comes from the nameserver.
func (u *upstream) datagram(ctx context.Context, server netip.AddrPort, e *exchange) (*found, error) {
	conn, done, err := u.send(ctx, "udp", server, e)
	if err != nil {
		return nil, err
	}
	defer done()
	buffer := make([]byte, maxStreamMessage)
	for range maxStrays {
		n, err := conn.Read(buffer)
		if err != nil {
			return nil, err
		}
		got, err := e.readAnswer(buffer[:n])
		if !errors.Is(err, errStray) {
			return got, err
		}
	}
	return nil, errStrays
}

// stream asks by TCP.
func (u *upstream) stream(ctx context.Context, server netip.AddrPort, e *exchange) (*found, error) {
	conn, done, err := u.send(ctx, "tcp", server, e)
	if err != nil {
		return nil, err
	}
	defer done()
	msg, err := readMessage(conn, maxStreamMessage)
	if err != nil {
		return nil, err
	}
	got, err := e.readAnswer(msg)
	if err == nil && got.truncated && got.isEmpty() {
		return nil, errTruncated
	}
	return got, err
}
