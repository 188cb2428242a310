package dispatch_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// Nothing in these tests closes a silent connection by time, so that a newcomer that waited for that would wait for ever.
var patient = dispatch.Limits{HelloTimeout: time.Hour}

func patientOperator(t *testing.T) *operator {
	t.Helper()
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	o := serveOn(t, newIdentity(t), listener, patient)
	_, port, _ := net.SplitHostPort(o.address)
	o.address = net.JoinHostPort("127.0.0.1", port)
	return o
}

// silent opens connections that say nothing, and tells which of them the operator has closed.
func silent(t *testing.T, o *operator, source string, n int) (closed <-chan int) {
	t.Helper()
	ends := make(chan int, n)
	var reading sync.WaitGroup
	t.Cleanup(reading.Wait)
	for i := range n {
		conn := dialFrom(t, o, source)
		reading.Go(func() {
			_, _ = conn.Read(make([]byte, 1))
			ends <- i
		})
	}
	return ends
}

func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	o := patientOperator(t)
	const n = 600
	closed := silent(t, o, "127.0.0.2", n)
	for range n - dispatch.MaxUnauthenticatedPerSource {
		if i := <-closed; i >= n-dispatch.MaxUnauthenticatedPerSource {
			t.Errorf("connection %d was closed before older ones", i)
		}
	}
	connect(t, runnerOf(t, podEnv(o, "job")), nil)
	if o.event(t).Hello().Job != "job" {
		t.Error("another runner was served")
	}
	if len(closed) != 0 {
		t.Errorf("%d more were closed for a runner from another address", len(closed))
	}
	// Also a runner beside them gets in at once: the oldest goes.
	p := handshake(t, dialFrom(t, o, "127.0.0.2"))
	p.waits(o, "beside")
	if o.event(t).Hello().Job != "beside" {
		t.Error("another runner was served")
	}
	if i := <-closed; i != n-dispatch.MaxUnauthenticatedPerSource {
		t.Errorf("connection %d was closed, not the oldest", i)
	}
}

func TestSilentConnectionsOfManyAddressesKeepNobodyOut(t *testing.T) {
	o := patientOperator(t)
	var all []<-chan int
	for _, source := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6", "127.0.0.7", "127.0.0.8", "127.0.0.9", "127.0.0.10"} {
		all = append(all, silent(t, o, source, dispatch.MaxUnauthenticatedPerSource))
	}
	for i := range 10 {
		job := "job-" + string(rune('a'+i))
		connect(t, runnerOf(t, podEnv(o, job)), nil)
		if got := o.event(t).Hello().Job; got != job {
			t.Errorf("%s was served instead of %s", got, job)
		}
	}
	closed := 0
	for _, ends := range all {
		closed += len(ends)
	}
	// Nine sources have more than there is room for: the ninth's, and ten runners'.
	if most := dispatch.MaxUnauthenticatedPerSource + 10; closed > most {
		t.Errorf("%d were closed, more than were in the way", closed)
	}
}

// stalled makes a peer that sends the beginning of a handshake and then never reads.
type stalled struct{ net.Conn }

func (s stalled) Read([]byte) (int, error) {
	// Ends when the operator closes the connection.
	_, _ = io.Copy(io.Discard, s.Conn)
	return 0, io.EOF
}

func TestUnfinishedHandshakesKeepNobodyOut(t *testing.T) {
	o := patientOperator(t)
	conf := clientTLS(t)
	var shaking sync.WaitGroup
	t.Cleanup(shaking.Wait)
	for range 300 {
		raw := dialFrom(t, o, "127.0.0.2")
		shaking.Go(func() { _ = tls.Client(stalled{raw}, conf).Handshake() })
	}
	connect(t, runnerOf(t, podEnv(o, "job")), nil)
	if o.event(t).Hello().Job != "job" {
		t.Error("another runner was served")
	}
}

func TestAFloodOfShortConnectionsKeepsNobodyOut(t *testing.T) {
	o := patientOperator(t)
	ctx, stop := context.WithCancel(context.Background())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer stop()
	for range 4 {
		flood.Go(func() {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
			for ctx.Err() == nil {
				conn, err := dialer.DialContext(ctx, "tcp", o.address)
				if err != nil {
					continue
				}
				// A reset leaves no port behind.
				_ = conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
		})
	}
	for i := range 10 {
		job := "job-" + string(rune('a'+i))
		connect(t, runnerOf(t, podEnv(o, job)), nil)
		if got := o.event(t).Hello().Job; got != job {
			t.Errorf("%s was served instead of %s", got, job)
		}
	}
}

func TestWhatIsNoRunnerIsTurnedAway(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	for name, bytes := range map[string]string{
		"plain text":    "GET / HTTP/1.1\r\n\r\n",
		"nothing":       "",
		"TLS-like junk": "\x16\x03\x01\x02\x00" + strings.Repeat("\xff", 600),
	} {
		conn := dialFrom(t, o, "127.0.0.1")
		if _, err := io.WriteString(conn, bytes); err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
		if o.hub.Len() != 0 {
			t.Errorf("%s: a session was made", name)
		}
	}
}

func TestTheFirstMessageIsAHelloWithinItsBound(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	for name, say := range map[string]func(*peer){
		"a ping":             func(p *peer) { p.send(`{"ping":{}}`) },
		"a result":           func(p *peer) { p.send(`{"result":{"callUID":"c1"}}`) },
		"an unknown message": func(p *peer) { p.send(`{"exec":{}}`) },
		"junk":               func(p *peer) { p.send(`hello`) },
		"nothing":            func(p *peer) { _ = p.CloseWrite() },
		"half a hello":       func(p *peer) { p.announce(100); _ = p.CloseWrite() },
		"a huge hello":       func(p *peer) { p.announce(wire.MaxHello + 1) },
		"a later version":    func(p *peer) { p.send(helloOf(o, wire.Version+1, "job", nil)) },
		"no version":         func(p *peer) { p.send(helloOf(o, 0, "job", nil)) },
		"a negative version": func(p *peer) { p.send(helloOf(o, -1, "job", nil)) },
	} {
		p := newPeer(t, o)
		say(p)
		p.awaitEnd()
		if o.hub.Len() != 0 || len(o.events) != 0 {
			t.Fatalf("%s: a session was made", name)
		}
	}
	p := newPeer(t, o)
	body := helloOf(o, wire.Version, "job", nil)
	p.send(body + strings.Repeat(" ", wire.MaxHello-len(body)))
	if o.event(t).Hello().Job != "job" {
		t.Error("a hello as long as it may be was refused")
	}
}

func TestAPeerWithoutACertificateIsTurnedAway(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	conn := tls.Client(dialFrom(t, o, "127.0.0.1"), &tls.Config{InsecureSkipVerify: true})
	// In TLS 1.3 the client learns of it with its first read.
	_ = conn.Handshake()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the operator talks to a peer without a key")
	}
	if o.hub.Len() != 0 {
		t.Error("a session was made")
	}
}

// drip sends bytes one by one until the other end has had enough, and says how long that took.
func drip(conn net.Conn, frame []byte) time.Duration {
	began := time.Now()
	for i := 0; ; i++ {
		if _, err := conn.Write(frame[i%len(frame) : i%len(frame)+1]); err != nil {
			return time.Since(began)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func TestASlowHelloIsCutOff(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, net.Conn) net.Conn{
		"in the handshake": func(_ *testing.T, raw net.Conn) net.Conn { return raw },
		"after it":         func(t *testing.T, raw net.Conn) net.Conn { return handshake(t, raw) },
	} {
		synctest.Test(t, func(t *testing.T) {
			n, o := bubble(t, dispatch.Limits{})
			raw, err := n.from("10.2.0.1")
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			// The length of a long message, TLS's or ours.
			frame := append([]byte{0x16, 0x03, 0x01, 0x40, 0x00}, make([]byte, 1<<14)...)
			if name == "after it" {
				frame = append(binary.BigEndian.AppendUint32(nil, wire.MaxHello), make([]byte, wire.MaxHello)...)
			}
			took := drip(begin(t, raw), frame)
			if took < dispatch.HelloTimeout || took > dispatch.HelloTimeout+time.Second {
				t.Errorf("%s: cut off after %s", name, took)
			}
			if o.hub.Len() != 0 {
				t.Error("a session was made")
			}
		})
	}
}

func TestAPeerThatVanishesBeforeItsHelloIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := bubble(t, dispatch.Limits{})
		raw, err := n.from("10.2.0.1")
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		began := time.Now()
		if _, err := raw.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != dispatch.HelloTimeout {
			t.Errorf("closed after %s", took)
		}
	})
}

func TestARunnerThatVanishesIsForgottenAndOneThatPingsStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o := bubble(t, dispatch.Limits{})
		stays := n.runner(t, podEnv(o, "stays"))
		o.event(t)
		reading := make(chan struct{})
		go func() {
			defer close(reading)
			_, _ = stays.Receive()
		}()
		p := n.peer(t)
		p.waits(o, "vanishes")
		gone := o.event(t)
		began := time.Now()
		if got := o.event(t); got != gone || o.hub.Runner("vanishes-uid") != nil {
			t.Error("the one that vanished is still there")
		}
		if took := time.Since(began); took != dispatch.IdleTimeout {
			t.Errorf("forgotten after %s", took)
		}
		time.Sleep(24 * time.Hour)
		if o.hub.Runner("stays-uid") == nil {
			t.Error("a runner that pings was forgotten")
		}
		stays.Close()
		<-reading
	})
}

// It isn't refused: a runner that waits for a call would end.
func TestOneRunnerTooManyIsTurnedAwayUntilAnotherGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o := bubble(t, dispatch.Limits{RunnersPerSource: 2})
		for i := range 10 {
			first, second, third := n.peer(t), n.peer(t), n.peer(t)
			first.waits(o, "a")
			o.event(t)
			second.waits(o, "b")
			o.event(t)
			third.waits(o, "c")
			if m, err := third.receive(); err == nil {
				t.Fatalf("round %d: got %+v", i, m)
			}
			first.NetConn().Close()
			second.NetConn().Close()
			o.event(t)
			o.event(t)
			synctest.Wait()
		}
	})
}

// isRefusedForNow checks that a runner is told why it isn't served, and keeps what it has.
func isRefusedForNow(t *testing.T, p *peer, reason string) {
	t.Helper()
	m, err := p.receive()
	if err != nil || m.Refuse == nil || m.Refuse.Final || !strings.Contains(m.Refuse.Reason, reason) {
		t.Errorf("got %+v, %v; want a refusal that isn't final", m, err)
	}
	p.awaitEnd()
}

func TestARunnerWithoutATokenIsToldWhyAndKeepsItsCall(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	for _, owner := range []*wire.Owner{nil, &theCall, &theSession} {
		p := newPeer(t, o)
		p.send(strings.Replace(helloOf(o, wire.Version, "job", owner), `"token":"`, `"token":"x`, 1))
		isRefusedForNow(t, p, "token")
		if o.hub.Len() != 0 || len(o.events) != 0 {
			t.Error("a session was made")
		}
	}
}

// One that waits exits, so that its pod is replaced. One that has a call keeps it for an operator of its version.
func TestARunnerOfAnotherVersionIsToldWhyAndKeepsItsCall(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	for _, version := range []int{wire.Version - 1, wire.Version + 1} {
		for _, owner := range []*wire.Owner{nil, &theCall, &theSession} {
			p := newPeer(t, o)
			p.send(helloOf(o, version, "job", owner))
			isRefusedForNow(t, p, fmt.Sprintf("the runner speaks version %d of the protocol, this operator version %d: use an image", version, wire.Version))
			if o.hub.Len() != 0 || len(o.events) != 0 {
				t.Error("a session was made")
			}
		}
	}
}
