package host

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// operator is a server on loopback, and what its hub told.
type operator struct {
	hub      *dispatch.Hub
	identity *dispatch.Identity
	address  string
	events   chan *dispatch.Runner
}

func startOperator(t *testing.T) *operator {
	t.Helper()
	identity, err := dispatch.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	o := &operator{identity: identity, events: make(chan *dispatch.Runner, 64)}
	o.hub = dispatch.NewHub(func(s *dispatch.Runner) { o.events <- s })
	conf, err := identity.ServerTLS(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		server := &dispatch.Server{Hub: o.hub, Authenticate: identity.CheckToken, TLS: conf, Log: logr.Discard()}
		if err := server.Serve(ctx, listener); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); serving.Wait() })
	return o
}

// event waits until the hub tells of a session.
func (o *operator) event(t *testing.T) *dispatch.Runner {
	t.Helper()
	select {
	case s := <-o.events:
		return s
	case <-time.After(30 * time.Second):
		t.Fatal("the hub told nothing")
		return nil
	}
}

// process is a runner of a Job: one key, over as many connections as it takes.
type process struct {
	o      *operator
	config *dial.Config
	conn   *dial.Conn
}

// process starts a runner. Its Job, pod and their UIDs follow from the name.
func (o *operator) process(t *testing.T, job string) *process {
	t.Helper()
	env := map[string]string{
		wire.EnvEndpoints: o.address, wire.EnvCA: o.identity.CA(),
		wire.EnvToken: o.identity.Token("ns", job, job+"-uid"), wire.EnvNamespace: "ns", wire.EnvPool: "env",
		wire.EnvJob: job, wire.EnvJobUID: job + "-uid", wire.EnvPod: job + "-pod", wire.EnvPodUID: job + "-pod-uid",
	}
	config, err := dial.FromEnv(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	return &process{o: o, config: config}
}

// connect dials in, with the call that the runner has if any.
func (p *process) connect(t *testing.T, callUID string) *dispatch.Runner {
	t.Helper()
	conn, err := p.config.Dial(context.Background(), dial.Call{UID: callUID, Name: "call"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	p.conn = conn
	return p.o.event(t)
}

// disconnect ends the connection, and waits until the hub has noticed.
func (p *process) disconnect(t *testing.T) {
	t.Helper()
	p.conn.Close()
	p.o.event(t)
}

// connectRunner is a new runner of a Job, connected and waiting.
func (o *operator) connectRunner(t *testing.T, job string) (*dispatch.Runner, *process) {
	t.Helper()
	p := o.process(t, job)
	return p.connect(t, ""), p
}
