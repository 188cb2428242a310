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
	o.hub = dispatch.NewHub(func(s *dispatch.Runner, _ dispatch.News) { o.events <- s })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		server := &dispatch.Server{Hub: o.hub, Identity: identity, Log: logr.Discard()}
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

// connect dials in and waits.
func (p *process) connect(t *testing.T) *dispatch.Runner {
	t.Helper()
	return p.connectWith(t, nil)
}

// connectForCall dials in for a call that runs.
func (p *process) connectForCall(t *testing.T, uid string) *dispatch.Runner {
	t.Helper()
	return p.connectWith(t, &wire.Serving{
		Owner: wire.BeginCall(uid, "call").Owner, Taken: 1, Held: 1, Calls: []wire.Held{{UID: uid, Name: "call", State: wire.Running}},
	})
}

// connectWith dials in with what the runner has, nil while it waits.
func (p *process) connectWith(t *testing.T, serving *wire.Serving) *dispatch.Runner {
	t.Helper()
	conn, err := p.config.Dial(context.Background(), serving)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if serving != nil {
		for i := range serving.Calls {
			if err := conn.Send(&wire.Message{Held: &serving.Calls[i]}); err != nil {
				t.Fatal(err)
			}
		}
	}
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
	return p.connect(t), p
}
