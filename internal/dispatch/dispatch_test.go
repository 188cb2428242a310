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
	events   chan *dispatch.Runner
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
	o := &operator{identity: identity, events: make(chan *dispatch.Runner, 64), address: listener.Addr().String()}
	o.hub = dispatch.NewHub(func(s *dispatch.Runner) { o.events <- s })
	conf, err := identity.ServerTLS(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		server := &dispatch.Server{Hub: o.hub, Authenticate: identity.CheckToken, TLS: conf, Log: logr.Discard()}
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
	return <-o.events
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

func connect(t *testing.T, config *dial.Config, callUID string) *dial.Conn {
	t.Helper()
	conn, err := config.Dial(context.Background(), dial.Call{UID: callUID, Name: "call"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func TestACallGoesOutAndItsResultComesBack(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	conn := connect(t, runnerOf(t, podEnv(o, "job")), "")
	session := o.event(t)
	if hello := session.Hello(); hello.Job != "job" || hello.Pod != "job-pod" || hello.Token != "" {
		t.Errorf("hello is %+v; it must name the pod and keep no token", hello)
	}
	if o.hub.Runner("job-uid") != session || o.hub.RunnerByKey(session.KeyHash()) != session {
		t.Error("the session is found neither by Job nor by key")
	}
	if err := session.Assign(&wire.Assignment{CallUID: "c1", Argv: []string{"true"}}); err != nil {
		t.Fatal(err)
	}
	if m, err := conn.Receive(); err != nil || m.Assign == nil || m.Assign.CallUID != "c1" {
		t.Fatalf("got %+v, %v; want the assignment", m, err)
	}
	if err := conn.Send(&wire.Message{Result: &wire.Result{CallUID: "c1", Outcome: result.Outcome{Reason: result.Completed}}}); err != nil {
		t.Fatal(err)
	}
	if got := o.event(t).Result(); got == nil || got.CallUID != "c1" {
		t.Fatalf("the result is %+v", got)
	}
	if err := session.Ack("c1"); err != nil {
		t.Fatal(err)
	}
	if m, err := conn.Receive(); err != nil || m.Ack == nil {
		t.Fatalf("got %+v, %v; want the acknowledgement", m, err)
	}
	conn.Close()
	o.event(t)
	if o.hub.Len() != 0 {
		t.Error("the session of a closed connection is still there")
	}
}

func TestAnAssignmentIsSentOnceAConnection(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	conn := connect(t, runnerOf(t, podEnv(o, "job")), "")
	session := o.event(t)
	for range 3 {
		if err := session.Assign(&wire.Assignment{CallUID: "c1"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := session.Cancel("c1"); err != nil {
		t.Fatal(err)
	}
	if m, err := conn.Receive(); err != nil || m.Assign == nil {
		t.Fatalf("first message is %+v, %v", m, err)
	}
	if m, err := conn.Receive(); err != nil || m.Cancel == nil {
		t.Fatalf("second message is %+v, %v; the assignment was repeated", m, err)
	}
}

func TestARunnerThatConnectsAgainTakesItsOwnPlace(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	config := runnerOf(t, podEnv(o, "job"))
	connect(t, config, "")
	first := o.event(t)
	connect(t, config, "c1")
	second := o.event(t)
	if first.KeyHash() != second.KeyHash() {
		t.Error("one process has two keys")
	}
	if second.CallUID() != "c1" {
		t.Errorf("the call that the runner has is %q", second.CallUID())
	}
	if o.hub.Runner("job-uid") != second {
		t.Error("the older connection is still the Job's session")
	}
}

func TestAnotherProcessWithTheTokenCannotTakeThePlace(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	connect(t, runnerOf(t, podEnv(o, "job")), "")
	first := o.event(t)
	thief := connect(t, runnerOf(t, podEnv(o, "job")), "")
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
			conn := connect(t, runnerOf(t, env), "")
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
	conn, err := runnerOf(t, env).Dial(context.Background(), dial.Call{})
	if err == nil {
		conn.Close()
		t.Fatal("the runner talked to an operator with another certificate")
	}
	if fake.hub.Len() != 0 {
		t.Error("the other operator has a session")
	}
}

func TestDismissRefusesTheRunnersOfACall(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	gone := connect(t, runnerOf(t, podEnv(o, "job")), "")
	o.event(t)
	env := podEnv(o, "other")
	env[wire.EnvCall] = "kept"
	connect(t, runnerOf(t, env), "")
	kept := o.event(t)
	o.hub.Dismiss("ns", "call", "", "deleted")
	m, err := gone.Receive()
	if err != nil || m.Refuse == nil || m.Refuse.Reason != "deleted" {
		t.Fatalf("got %+v, %v; want a refusal", m, err)
	}
	if o.hub.Runner("other-uid") != kept {
		t.Error("another call's runner was dismissed too")
	}
}
