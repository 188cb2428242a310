package dispatch_test

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
	"toolcall.dev/operator/internal/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// operator is a server on loopback, and what its hub told.
type operator struct {
	hub      *dispatch.Hub
	identity *dispatch.Identity
	address  string
	events   chan told
	// last is the news of the last event that was waited for.
	last dispatch.News
}

// told is what the hub told of a runner.
type told struct {
	*dispatch.Runner
	news dispatch.News
}

func newIdentity(t testing.TB) *dispatch.Identity {
	t.Helper()
	identity, err := dispatch.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

func startOperator(t testing.TB, identity *dispatch.Identity) *operator {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, identity, listener, dispatch.Limits{})
}

func serveOn(t testing.TB, identity *dispatch.Identity, listener net.Listener, limits dispatch.Limits) *operator {
	t.Helper()
	o := &operator{identity: identity, events: make(chan told, 64), address: listener.Addr().String()}
	o.hub = dispatch.NewHub(func(s *dispatch.Runner, news dispatch.News) { o.events <- told{s, news} })
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		server := &dispatch.Server{Hub: o.hub, Identity: identity, Log: logr.Discard()}
		if err := server.ServeWith(ctx, listener, limits); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); serving.Wait() })
	return o
}

// event waits for the next one. The test binary's own timeout ends a wait for one that never comes.
func (o *operator) event(t testing.TB) *dispatch.Runner {
	t.Helper()
	event := <-o.events
	o.last = event.news
	return event.Runner
}

// podEnv is what a pod of the Job would be given.
func podEnv(o *operator, job string) map[string]string {
	return map[string]string{
		wire.EnvEndpoints: o.address, wire.EnvCA: o.identity.CA(),
		wire.EnvToken: o.identity.Token("ns", job, job+"-uid"), wire.EnvNamespace: "ns",
		wire.EnvCall: "call", wire.EnvJob: job, wire.EnvJobUID: job + "-uid",
		wire.EnvPod: job + "-pod", wire.EnvPodUID: job + "-pod-uid", wire.EnvNode: "node",
	}
}

func runnerOf(t testing.TB, env map[string]string) *dial.Config {
	t.Helper()
	config, err := dial.FromEnv(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// connect says hello, and then which calls the runner has; serving is nil for one that waits.
func connect(t *testing.T, config *dial.Config, serving *wire.Serving) *dial.Conn {
	t.Helper()
	conn, err := config.Dial(context.Background(), serving)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if serving == nil {
		return conn
	}
	for i := range serving.Calls {
		if err := conn.Send(&wire.Message{Held: &serving.Calls[i]}); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// servingC1 is what the runner of an owner says that runs call "c1".
func servingC1(owner wire.Owner) *wire.Serving {
	return &wire.Serving{Owner: owner, Taken: 1, Held: 1, Calls: []wire.Held{{UID: "c1", Name: "call", State: wire.Running}}}
}

func TestACallGoesOutAndItsResultComesBack(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	conn := connect(t, runnerOf(t, podEnv(o, "job")), nil)
	runner := o.event(t)
	if hello := runner.Hello(); hello.Job != "job" || hello.Pod != "job-pod" || hello.Token != "" {
		t.Errorf("hello is %+v; it must name the pod and keep no token", hello)
	}
	if o.hub.Runner("job-uid") != runner || o.hub.RunnerByKey(runner.KeyHash()) != runner {
		t.Error("the runner is found neither by Job nor by key")
	}
	if err := runner.Begin(wire.BeginCall("c1", "call")); err != nil {
		t.Fatal(err)
	}
	if err := runner.Assign("c1", &wire.Assignment{CallUID: "c1", CallName: "call", Argv: []string{"true"}}); err != nil {
		t.Fatal(err)
	}
	if m, err := conn.Receive(); err != nil || m.Begin == nil || m.Begin.Owner != theCall || m.Begin.Check() != nil {
		t.Fatalf("got %+v, %v; want the beginning", m, err)
	}
	if m, err := conn.Receive(); err != nil || m.Assign == nil || m.Assign.CallUID != "c1" {
		t.Fatalf("got %+v, %v; want the assignment", m, err)
	}
	if err := conn.Send(&wire.Message{Result: &wire.Result{CallUID: "c1", Outcome: result.Outcome{Reason: result.Completed}}}); err != nil {
		t.Fatal(err)
	}
	if got := o.event(t).ResultOf("c1"); got == nil || got.CallUID != "c1" {
		t.Fatalf("the result is %+v", got)
	}
	if err := runner.Ack("c1"); err != nil {
		t.Fatal(err)
	}
	if m, err := conn.Receive(); err != nil || m.Ack == nil {
		t.Fatalf("got %+v, %v; want the acknowledgement", m, err)
	}
	conn.Close()
	o.event(t)
	if o.hub.Len() != 0 {
		t.Error("the runner of a closed connection is still there")
	}
}

func TestARunnerThatConnectsAgainTakesItsOwnPlace(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	config := runnerOf(t, podEnv(o, "job"))
	connect(t, config, nil)
	first := o.event(t)
	connect(t, config, servingC1(theCall))
	second := o.event(t)
	if first.KeyHash() != second.KeyHash() {
		t.Error("one process has two keys")
	}
	if owner, _ := second.Owner(); owner != theCall || states(second.HeldCalls()) != "c1 Running" {
		t.Errorf("it is the runner of %+v and has %v", owner, second.HeldCalls())
	}
	if o.hub.Runner("job-uid") != second {
		t.Error("the older connection is still the Job's session")
	}
}

func TestAnotherProcessWithTheTokenCannotTakeThePlace(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	connect(t, runnerOf(t, podEnv(o, "job")), nil)
	first := o.event(t)
	thief := connect(t, runnerOf(t, podEnv(o, "job")), nil)
	if _, err := thief.Receive(); err == nil {
		t.Fatal("a second process with the same token was listened to")
	}
	if o.hub.Runner("job-uid") != first {
		t.Error("the second process took the first one's place")
	}
}

func TestATokenOpensItsOwnJobOnly(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	for name, change := range map[string]func(map[string]string){
		"another Job's token": func(e map[string]string) { e[wire.EnvToken] = o.identity.Token("ns", "other", "other-uid") },
		"another namespace":   func(e map[string]string) { e[wire.EnvNamespace] = "ns2" },
		"another UID":         func(e map[string]string) { e[wire.EnvJobUID] = "x" },
		"no such token":       func(e map[string]string) { e[wire.EnvToken] = "guess" },
		"names that run together": func(e map[string]string) {
			e[wire.EnvToken] = o.identity.Token("nsj", "ob", "job-uid")
		},
	} {
		t.Run(name, func(t *testing.T) {
			env := podEnv(o, "job")
			change(env)
			conn := connect(t, runnerOf(t, env), nil)
			m, err := conn.Receive()
			if err == nil && m.Refuse == nil {
				t.Fatalf("got %+v; want a refusal", m)
			}
			if o.hub.Len() != 0 {
				t.Error("a session was made")
			}
		})
	}
}

func TestARunnerSaysNothingToAnotherOperator(t *testing.T) {
	real, fake := startOperator(t, newIdentity(t)), startOperator(t, newIdentity(t))
	env := podEnv(real, "job")
	env[wire.EnvEndpoints] = fake.address
	conn, err := runnerOf(t, env).Dial(context.Background(), nil)
	if err == nil {
		conn.Close()
		t.Fatal("the runner talked to an operator with another certificate")
	}
	if fake.hub.Len() != 0 {
		t.Error("the other operator has a session")
	}
}
