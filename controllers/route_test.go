package controllers_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/controllers"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
	queues "toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/trigger"
)

type requests = priorityqueue.PriorityQueue[reconcile.Request]

// listen is the queue of the controller that a trigger feeds.
func listen(t *testing.T, tr *trigger.Trigger) requests {
	t.Helper()
	q, ok := tr.Queue("", nil).(requests)
	if !ok {
		t.Fatal("the controller's queue knows no priorities")
	}
	t.Cleanup(q.ShutDown)
	return q
}

// next checks what a controller looks at next.
func next(t *testing.T, q requests, name string, priority int) {
	t.Helper()
	request, got, _ := q.GetWithPriority()
	q.Done(request)
	if request.Namespace != "ns" || request.Name != name || got != priority {
		t.Errorf("%s is looked at, with priority %d; want %s, %d", request.Name, got, name, priority)
	}
}

// serveMemory runs a server for the runners of a Memory, and returns a runner of Job "job" that serves a session.
func serveMemory(t *testing.T, m *controllers.Memory) *dial.Config {
	t.Helper()
	identity, err := dispatch.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		server := &dispatch.Server{Hub: m.Hub, Identity: identity, Log: logr.Discard()}
		if err := server.Serve(ctx, listener); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); serving.Wait() })
	env := map[string]string{
		wire.EnvEndpoints: listener.Addr().String(), wire.EnvCA: identity.CA(), wire.EnvToken: identity.Token("ns", "job", "job-uid"),
		wire.EnvNamespace: "ns", wire.EnvPool: "env", wire.EnvJob: "job", wire.EnvJobUID: "job-uid", wire.EnvPod: "pod", wire.EnvPodUID: "pod-uid",
	}
	config, err := dial.FromEnv(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestTheNewsOfASessionsRunnerGoesToTheSessionAndItsCalls(t *testing.T) {
	m := controllers.NewMemory(clock.RealClock{}, nil, queues.PendingOptions{})
	calls, sessions := listen(t, m.Calls), listen(t, m.Sessions)
	owner := wire.Owner{Kind: wire.KindSession, UID: "s1", Name: "session", Incarnation: 1}
	conn, err := serveMemory(t, m).Dial(context.Background(), &wire.Serving{Owner: owner, Held: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if err := conn.Send(&wire.Message{Held: &wire.Held{UID: "c1", Name: "call", State: wire.Running}}); err != nil {
		t.Fatal(err)
	}
	next(t, sessions, "session", trigger.PriorityStart)
	next(t, calls, "call", trigger.PriorityStart)
	if err := conn.Send(&wire.Message{Result: &wire.Result{CallUID: "c1", Outcome: result.Outcome{Reason: result.Completed}}}); err != nil {
		t.Fatal(err)
	}
	next(t, calls, "call", trigger.PriorityResult)
	if sessions.Len() != 0 {
		t.Error("a result has the session looked at")
	}
	conn.Close()
	next(t, sessions, "session", trigger.PriorityStart)
	next(t, calls, "call", trigger.PriorityResult)
}

func TestTheNewsOfACallsRunnerGoesToTheCall(t *testing.T) {
	m := controllers.NewMemory(clock.RealClock{}, nil, queues.PendingOptions{})
	calls, sessions := listen(t, m.Calls), listen(t, m.Sessions)
	owner := wire.Owner{Kind: wire.KindCall, UID: "c1", Name: "call"}
	conn, err := serveMemory(t, m).Dial(context.Background(), &wire.Serving{Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	next(t, calls, "call", trigger.PriorityStart)
	if err := m.Hub.Runner("job-uid").Assign("c1", &wire.Assignment{CallUID: "c1", CallName: "call"}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Send(&wire.Message{Result: &wire.Result{CallUID: "c1", Outcome: result.Outcome{Reason: result.Completed}}}); err != nil {
		t.Fatal(err)
	}
	next(t, calls, "call", trigger.PriorityResult)
	conn.Close()
	next(t, calls, "call", trigger.PriorityResult)
	if sessions.Len() != 0 {
		t.Error("a call's runner has a session looked at")
	}
}

// The beginning was lost with the connection, whose end nobody has noticed before the runner comes back.
func TestACallWhoseBeginningWasLostIsLookedAt(t *testing.T) {
	m := controllers.NewMemory(clock.RealClock{}, nil, queues.PendingOptions{})
	calls, pools := listen(t, m.Calls), listen(t, m.Pools)
	config := serveMemory(t, m)
	for range 2 {
		conn, err := config.Dial(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		next(t, pools, "env", trigger.PriorityStart)
		if r := m.Hub.Runner("job-uid"); calls.Len() == 0 {
			if err := r.Begin(wire.BeginCall("c1", "call")); err != nil {
				t.Fatal(err)
			}
		}
	}
	next(t, calls, "call", trigger.PriorityStart)
}
