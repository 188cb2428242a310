package mcpserver

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/mcpserver/reply"
)

// flaky loses the responses of the first create requests, after or before they were carried out.
type flaky struct {
	calls
	mu    sync.Mutex
	lose  int
	after bool
	tries int
}

func (f *flaky) Create(ctx context.Context, call *v1alpha1.ToolCall) (*v1alpha1.ToolCall, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tries++
	if f.tries > f.lose {
		return f.calls.Create(ctx, call)
	}
	if f.after {
		if _, err := f.calls.Create(ctx, call); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("read tcp: connection reset by peer")
}

// A create request whose response is lost is retried with the same name, so there is only one call.
func TestALostResponse(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"before it was carried out": false, "after it was carried out": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.operate(echo)
			requester := f.local()
			requester.Calls = &flaky{calls: requester.Calls, lose: 1, after: after}
			answer, result := use(t, connected(t, newTestServer(t, requester, 8), nil), "run_command", fields{"command": "once"})
			if answer.IsError || result.Output != "once" {
				t.Errorf("%+v", result)
			}
			f.only("finished", func(c *v1alpha1.ToolCall) bool { return c.Status.Phase.Terminal() })
		})
	}
}

// Without any response, the answer has the name of the call, and says that it may run.
func TestAnAPIServerThatDoesNotRespond(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	requester := f.local()
	requester.Calls = &flaky{calls: requester.Calls, lose: 100}
	answer, result := use(t, connected(t, newTestServer(t, requester, 8), nil), "run_command", fields{"command": "x"})
	if !answer.IsError || result.Reason != reply.ReasonUnknown || !strings.HasPrefix(result.Call, namePrefix) || ptr.Deref(result.RetrySafe, true) ||
		!strings.Contains(result.Output, "connection reset") {
		t.Errorf("%+v", result)
	}
	if tries := requester.Calls.(*flaky).tries; tries != createTries {
		t.Errorf("%d tries", tries)
	}
}

// refusing carries out the first create request, loses its response, and refuses the others.
type refusing struct {
	calls
	sessionStarter
	refusal error
	lost    bool
}

func (r *refusing) answer(err error) error {
	if r.lost {
		return r.refusal
	}
	r.lost = true
	return errors.Join(err, errors.New("read tcp: connection reset by peer"))
}

func (r *refusing) Create(ctx context.Context, call *v1alpha1.ToolCall) (*v1alpha1.ToolCall, error) {
	_, err := r.calls.Create(ctx, call)
	return nil, r.answer(err)
}

func (r *refusing) CreateSession(ctx context.Context, session *v1alpha1.ToolSession) (*v1alpha1.ToolSession, error) {
	_, err := r.sessionStarter.CreateSession(ctx, session)
	return nil, r.answer(err)
}

// A refusal says nothing about an earlier request whose response was lost.
func TestARefusalAfterALostResponse(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{
		apierrors.NewForbidden(schema.GroupResource{Resource: "toolcalls"}, "", errors.New("quota")), apierrors.NewUnauthorized("expired"),
		apierrors.NewServiceUnavailable("shutting down"), apierrors.NewTooManyRequests("later", 0),
	} {
		t.Run(refusal.Error(), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			requester := f.local()
			requester.Calls = &refusing{calls: requester.Calls, refusal: refusal}
			requester.Sessions = &refusing{sessionStarter: requester.Sessions, refusal: refusal}
			session := connected(t, newTestServer(t, requester, 8), nil)
			answer, result := use(t, session, "run_command", fields{"command": "once"})
			call := f.only("created", func(*v1alpha1.ToolCall) bool { return true })
			if !answer.IsError || result.Reason != reply.ReasonUnknown || result.Call != call.Name || ptr.Deref(result.RetrySafe, true) {
				t.Errorf("%+v", result)
			}
			_, started := use(t, session, "start_session", nil)
			if open, _ := f.sessions(); len(open) != 1 || started.Session != open[0] || started.Reason != reply.ReasonUnknown || ptr.Deref(started.RetrySafe, true) {
				t.Errorf("%+v, sessions %q", started, open)
			}
		})
	}
}

// busy refuses the first request.
type busy struct {
	calls
	refused bool
}

func (b *busy) Create(ctx context.Context, call *v1alpha1.ToolCall) (*v1alpha1.ToolCall, error) {
	if !b.refused {
		b.refused = true
		return nil, apierrors.NewTooManyRequests("later", 0)
	}
	return b.calls.Create(ctx, call)
}

// A request that the API server has no time for is repeated.
func TestABusyAPIServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(echo)
	requester := f.local()
	requester.Calls = &busy{calls: requester.Calls}
	if answer, result := use(t, connected(t, newTestServer(t, requester, 8), nil), "run_command", fields{"command": "x"}); answer.IsError {
		t.Errorf("%+v", result)
	}
}

// swapped replaces a call that was created by another one, before anybody has read it.
type swapped struct {
	calls
	f *fixture
}

func (s *swapped) Create(ctx context.Context, call *v1alpha1.ToolCall) (*v1alpha1.ToolCall, error) {
	created, err := s.calls.Create(ctx, call)
	must(s.f.t, err)
	must(s.f.t, s.f.admin.Delete(ctx, created.DeepCopy()))
	other := &v1alpha1.ToolCall{}
	other.Namespace, other.Name = call.Namespace, call.Name
	other.Spec.Shell = &v1alpha1.ShellAction{Command: "not yours"}
	must(s.f.t, s.f.admin.Create(ctx, other))
	return created, nil
}

// Another call of the same name is not the call that was created.
func TestACallThatIsSwapped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(echo)
	requester := f.local()
	requester.Calls = &swapped{requester.Calls, f}
	answer, result := use(t, connected(t, newTestServer(t, requester, 8), nil), "run_command", fields{"command": "x"})
	if !answer.IsError || result.Reason != reply.ReasonDeleted || strings.Contains(result.Output, "not yours") {
		t.Errorf("%+v", result)
	}
}

// uncancellable fails to cancel calls.
type uncancellable struct{ calls }

func (uncancellable) Cancel(context.Context, types.NamespacedName, types.UID) (*v1alpha1.ToolCall, error) {
	return nil, errors.New("connection refused")
}

func (u uncancellable) Wait(ctx context.Context, _ types.NamespacedName, _ follow.Watcher) (*v1alpha1.ToolCall, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Cancellation is retried for a bounded time. Then the error says that the call may still run.
func TestACallThatCannotBeCancelled(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	end()
	_, err := cancel(ctx, uncancellable{}, &v1alpha1.ToolCall{})
	if err == nil || !strings.Contains(err.Error(), "may still run") {
		t.Error(err)
	}
}
