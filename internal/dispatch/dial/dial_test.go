package dial_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// operator is the other end: it makes the handshake, and the test does the rest.
type operator struct {
	t    *testing.T
	env  map[string]string
	conf *tls.Config
	// dials counts the attempts, and far has the operator's end of each.
	dials atomic.Int32
	far   map[string]chan net.Conn
}

func newOperator(t *testing.T, endpoints ...string) *operator {
	t.Helper()
	identity, err := dispatch.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	conf, err := identity.ServerTLS(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	o := &operator{t: t, conf: conf, far: map[string]chan net.Conn{}, env: map[string]string{
		wire.EnvEndpoints: strings.Join(endpoints, ","), wire.EnvCA: identity.CA(), wire.EnvToken: "token", wire.EnvNamespace: "ns",
		wire.EnvCall: "call", wire.EnvPool: "pool", wire.EnvJob: "job", wire.EnvJobUID: "job-uid",
		wire.EnvPod: "pod", wire.EnvPodUID: "pod-uid", wire.EnvNode: "node",
	}}
	for _, endpoint := range endpoints {
		o.far[endpoint] = make(chan net.Conn, 1)
	}
	return o
}

// config dials in memory.
func (o *operator) config() *dial.Config {
	o.t.Helper()
	config, err := dial.FromEnv(func(name string) string { return o.env[name] })
	if err != nil {
		o.t.Fatal(err)
	}
	config.DialContext = func(_ context.Context, network, address string) (net.Conn, error) {
		if network != "tcp" {
			o.t.Errorf("the network is %q", network)
		}
		o.dials.Add(1)
		if strings.HasPrefix(address, "closed") {
			return nil, errors.New("connection refused")
		}
		near, far := net.Pipe()
		o.far[address] <- far
		return near, nil
	}
	return config
}

// accept makes the handshake at an endpoint.
func (o *operator) accept(endpoint string) *tls.Conn {
	o.t.Helper()
	conn := tls.Server(<-o.far[endpoint], o.conf)
	o.t.Cleanup(func() { conn.NetConn().Close() })
	if err := conn.Handshake(); err != nil {
		o.t.Error(err)
	}
	return conn
}

// connected is a connection that has said hello, and the operator's end of it.
func connected(t *testing.T, call dial.Call) (*dial.Conn, *tls.Conn, *wire.Hello) {
	t.Helper()
	o := newOperator(t, "one:1")
	config := o.config()
	type answer struct {
		conn *dial.Conn
		err  error
	}
	answers := make(chan answer)
	go func() {
		conn, err := config.Dial(t.Context(), call)
		answers <- answer{conn, err}
	}()
	far := o.accept("one:1")
	m, err := wire.Read(far, wire.MaxHello)
	if err != nil || m.Hello == nil {
		t.Fatalf("got %+v, %v; want a hello", m, err)
	}
	a := <-answers
	if a.err != nil {
		t.Fatal(a.err)
	}
	t.Cleanup(a.conn.Close)
	return a.conn, far, m.Hello
}

func TestTheHelloSaysWhereTheRunnerBelongs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, hello := connected(t, dial.Call{})
		want := wire.Hello{
			Version: wire.Version, Namespace: "ns", Call: "call", Pool: "pool", Job: "job", JobUID: "job-uid",
			Pod: "pod", PodUID: "pod-uid", Node: "node", Token: "token",
		}
		if *hello != want {
			t.Errorf("got %+v", hello)
		}
		_, _, hello = connected(t, dial.Call{UID: "c1", Name: "given"})
		want.CallUID, want.Call = "c1", "given"
		if *hello != want {
			t.Errorf("with a call: got %+v", hello)
		}
	})
}

func TestWhatARunnerNeedsIsNamedWhenMissing(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "one:1")
	for _, name := range []string{wire.EnvEndpoints, wire.EnvCA, wire.EnvToken, wire.EnvNamespace, wire.EnvJob, wire.EnvJobUID, wire.EnvPod, wire.EnvPodUID} {
		for _, broken := range []string{"", "not base64", base64.StdEncoding.EncodeToString([]byte("no certificate"))} {
			if broken != "" && name != wire.EnvCA {
				continue
			}
			_, err := dial.FromEnv(func(n string) string {
				if n == name {
					return broken
				}
				return o.env[n]
			})
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s as %q: %v", name, broken, err)
			}
		}
	}
}

func TestTheNextEndpointIsTriedAtOnceWhenOneFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t, "closed:1", "two:1")
		config := o.config()
		began := time.Now()
		go func() {
			conn := o.accept("two:1")
			_, _ = io.Copy(io.Discard, conn)
		}()
		conn, err := config.Dial(t.Context(), dial.Call{})
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if took := time.Since(began); took != 0 || o.dials.Load() != 2 {
			t.Errorf("it took %s and %d attempts", took, o.dials.Load())
		}
	})
}

// An address at which nobody answers, not even with a refusal, is what a pod that is gone leaves.
func TestTheNextEndpointIsTriedAfterAMomentWhenOneIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t, "silent:1", "silent:2", "three:1")
		config := o.config()
		began := time.Now()
		go func() {
			conn := o.accept("three:1")
			_, _ = io.Copy(io.Discard, conn)
		}()
		conn, err := config.Dial(t.Context(), dial.Call{})
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("it took %s to come to the third endpoint", took)
		}
		// The attempts that lost are closed.
		for _, endpoint := range []string{"silent:1", "silent:2"} {
			if _, err := io.ReadAll(<-o.far[endpoint]); err != nil {
				t.Errorf("%s: %v", endpoint, err)
			}
		}
	})
}

func TestDialPassesASilentAddressOnARealNetwork(t *testing.T) {
	identity, err := dispatch.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	o := newOperator(t, "unused:1")
	o.env[wire.EnvCA] = identity.CA()
	conf, err := identity.ServerTLS(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = io.Copy(io.Discard, conn)
			conn.Close()
		}
	}()
	o.env[wire.EnvEndpoints] = silent.Addr().String() + "," + listener.Addr().String()
	config := o.config()
	config.DialContext = nil
	// It would fail if it waited for the first.
	conn, err := config.Dial(t.Context(), dial.Call{})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestDialNamesEveryEndpointThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t, "closed:1", "closed:2")
		config := o.config()
		_, err := config.Dial(t.Context(), dial.Call{})
		if err == nil || !strings.Contains(err.Error(), "closed:1") || !strings.Contains(err.Error(), "closed:2") {
			t.Errorf("got %v", err)
		}
	})
}

func TestDialGivesUpInTime(t *testing.T) {
	for name, prepare := range map[string]func(*operator){
		"nobody answers":        func(*operator) {},
		"the hello is not read": func(o *operator) { go o.accept("one:1") },
		"it talks, but makes no sense": func(o *operator) {
			go func() {
				far := <-o.far["one:1"]
				defer far.Close()
				_, _ = io.Copy(io.Discard, far)
			}()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := newOperator(t, "one:1")
			config := o.config()
			prepare(o)
			began := time.Now()
			if conn, err := config.Dial(t.Context(), dial.Call{}); err == nil {
				conn.Close()
				t.Errorf("%s: connected", name)
			}
			if took := time.Since(began); took != 5*time.Second {
				t.Errorf("%s: gave up after %s", name, took)
			}
		})
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t, "one:1")
		config := o.config()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := config.Dial(ctx, dial.Call{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestNothingIsSaidToAnotherOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, other := newOperator(t, "one:1"), newOperator(t, "one:1")
		o.conf = other.conf
		config := o.config()
		heard := make(chan int64)
		go func() {
			conn := tls.Server(<-o.far["one:1"], o.conf)
			defer conn.NetConn().Close()
			_ = conn.Handshake()
			n, _ := io.Copy(io.Discard, conn)
			heard <- n
		}()
		if conn, err := config.Dial(t.Context(), dial.Call{}); err == nil {
			conn.Close()
			t.Error("connected to an operator with another certificate")
		}
		if n := <-heard; n != 0 {
			t.Errorf("%d bytes were said to it", n)
		}
	})
}

// say writes a frame as an operator does.
func say(t *testing.T, conn net.Conn, body string) {
	t.Helper()
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)); err != nil {
		t.Error(err)
	}
}

func TestPongsAndWhatIsUnknownAreSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, far, _ := connected(t, dial.Call{})
		go func() {
			for _, body := range []string{`{"pong":{}}`, `{"progress":{"bytes":1}}`, `{}`, `{"pong":{"load":1},"x":2}`, `{"cancel":{"callUID":"c1","grace":5}}`} {
				say(t, far, body)
			}
		}()
		if m, err := conn.Receive(); err != nil || m.Cancel == nil || m.Cancel.CallUID != "c1" {
			t.Errorf("got %+v, %v", m, err)
		}
	})
}

func TestABrokenFrameEndsTheConnection(t *testing.T) {
	for name, body := range map[string]string{"not JSON": "hello", "two messages": `{"ack":{},"cancel":{}}`} {
		synctest.Test(t, func(t *testing.T) {
			conn, far, _ := connected(t, dial.Call{})
			go say(t, far, body)
			if m, err := conn.Receive(); err == nil {
				t.Errorf("%s: got %+v", name, m)
			}
			if err := conn.Send(&wire.Message{Ping: &wire.Ping{}}); err == nil {
				t.Errorf("%s: the connection goes on", name)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		conn, far, _ := connected(t, dial.Call{})
		go func() { _, _ = far.Write(binary.BigEndian.AppendUint32(nil, wire.MaxAssignment+1)) }()
		if _, err := conn.Receive(); !errors.Is(err, wire.ErrTooLarge) {
			t.Errorf("a frame over the bound: %v", err)
		}
	})
}

func TestARunnerPingsAndNoticesAnOperatorThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, far, _ := connected(t, dial.Call{})
		began := time.Now()
		silent := make(chan time.Time, 1)
		go func() {
			// It answers for a day, and then no more.
			for {
				m, err := wire.Read(far, wire.MaxControl)
				if err != nil {
					return
				}
				if m.Ping == nil {
					t.Errorf("got %+v", m)
				}
				if time.Since(began) >= 24*time.Hour {
					if len(silent) == 0 {
						silent <- time.Now()
					}
					continue
				}
				say(t, far, `{"pong":{}}`)
			}
		}()
		if m, err := conn.Receive(); err == nil {
			t.Errorf("got %+v", m)
		}
		// The last answer was one interval before the first ping that got none.
		if took := time.Since(<-silent); took != 2*wire.PingInterval {
			t.Errorf("noticed after %s", took)
		}
	})
}

// An operator that has no room for a result yet doesn't read it, and says that it is alive.
func TestAResultWaitsForAnOperatorThatIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, far, _ := connected(t, dial.Call{})
		received := make(chan error)
		go func() {
			_, err := conn.Receive()
			received <- err
		}()
		sent := make(chan error)
		go func() { sent <- conn.Send(&wire.Message{Result: &wire.Result{CallUID: "c1"}}) }()
		for range 100 {
			time.Sleep(wire.PingInterval)
			say(t, far, `{"pong":{}}`)
		}
		if m, err := wire.Read(far, wire.MaxResult); err != nil || m.Result == nil {
			t.Errorf("got %+v, %v", m, err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		conn.Close()
		if err := <-received; err == nil {
			t.Error("received something from a closed connection")
		}
	})
}

func TestAResultDoesNotWaitForAnOperatorThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _, _ := connected(t, dial.Call{})
		received := make(chan error)
		go func() {
			_, err := conn.Receive()
			received <- err
		}()
		began := time.Now()
		if err := conn.Send(&wire.Message{Result: &wire.Result{CallUID: "c1"}}); err == nil {
			t.Error("it was sent to nobody")
		}
		if took := time.Since(began); took != 3*wire.PingInterval {
			t.Errorf("gave up after %s", took)
		}
		if err := <-received; err == nil {
			t.Error("received something from nobody")
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _, _ := connected(t, dial.Call{})
		ended := make(chan error, 3)
		go func() {
			_, err := conn.Receive()
			ended <- err
		}()
		for range 2 {
			// One writes, one waits for it.
			go func() { ended <- conn.Send(&wire.Message{Ping: &wire.Ping{}}) }()
		}
		synctest.Wait()
		conn.Close()
		conn.Close()
		for range 3 {
			if err := <-ended; err == nil {
				t.Error("ended well")
			}
		}
	})
}
