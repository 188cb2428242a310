package dial_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
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
func connected(t *testing.T, serving *wire.Serving, prepare ...func(*dial.Config)) (*dial.Conn, *tls.Conn, *wire.Hello) {
	t.Helper()
	o := newOperator(t, "one:1")
	config := o.config()
	for _, p := range prepare {
		p(config)
	}
	type answer struct {
		conn *dial.Conn
		err  error
	}
	answers := make(chan answer)
	go func() {
		conn, err := config.Dial(t.Context(), serving)
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
		_, _, hello := connected(t, nil)
		want := wire.Hello{
			Version: wire.Version, Namespace: "ns", Call: "call", Pool: "pool", Job: "job", JobUID: "job-uid",
			Pod: "pod", PodUID: "pod-uid", Node: "node", Token: "token",
		}
		if *hello != want {
			t.Errorf("got %+v", hello)
		}
	})
}

func TestTheHelloOfARunnerThatHasBegunSaysWhatItHas(t *testing.T) {
	for name, owner := range map[string]wire.Owner{
		"a call":    {Kind: wire.KindCall, UID: "c1", Name: "given"},
		"a session": {Kind: wire.KindSession, UID: "s1", Name: "session", Incarnation: 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			serving := &wire.Serving{Owner: owner, Taken: 3, Held: 1, Calls: []wire.Held{{UID: "c1", State: wire.Ended}}}
			conn, far, hello := connected(t, serving)
			if s := hello.Serving; s == nil || s.Owner != owner || s.Taken != 3 || s.Held != 1 || len(s.Calls) != 0 || hello.Call != "call" {
				t.Errorf("%s: got %+v with %+v", name, hello, s)
			}
			go func() { _ = conn.Send(&wire.Message{Held: &serving.Calls[0]}) }()
			size, err := wire.ReadHeader(far, wire.MaxHeld)
			if err != nil {
				t.Fatal(err)
			}
			if m, err := wire.ReadFromRunner(far, size); err != nil || m.Held == nil || m.Held.UID != "c1" {
				t.Errorf("%s: after the hello comes %+v, %v", name, m, err)
			}
		})
	}
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
		conn, err := config.Dial(t.Context(), nil)
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
		conn, err := config.Dial(t.Context(), nil)
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
	conn, err := config.Dial(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestDialNamesEveryEndpointThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOperator(t, "closed:1", "closed:2")
		config := o.config()
		_, err := config.Dial(t.Context(), nil)
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
			if conn, err := config.Dial(t.Context(), nil); err == nil {
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
		if _, err := config.Dial(ctx, nil); !errors.Is(err, context.Canceled) {
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
		if conn, err := config.Dial(t.Context(), nil); err == nil {
			conn.Close()
			t.Error("connected to an operator with another certificate")
		}
		if n := <-heard; n != 0 {
			t.Errorf("%d bytes were said to it", n)
		}
	})
}
