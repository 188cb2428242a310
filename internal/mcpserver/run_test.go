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
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
)

// flaky loses the responses of the first create requests, after or before they were carried out.
type flaky struct {
	objects
	mu    sync.Mutex
	lose  int
	after bool
	tries int
}

func (f *flaky) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tries++
	if f.tries > f.lose {
		return f.objects.Create(ctx, o, opts...)
	}
	if f.after {
		if err := f.objects.Create(ctx, o, opts...); err != nil {
			return err
		}
	}
	return errors.New("read tcp: connection reset by peer")
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
			requester.Objects = &flaky{objects: requester.Objects, lose: 1, after: after}
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
	requester.Objects = &flaky{objects: requester.Objects, lose: 100}
	answer, result := use(t, connected(t, newTestServer(t, requester, 8), nil), "run_command", fields{"command": "x"})
	if !answer.IsError || result.Reason != reply.ReasonUnknown || !strings.HasPrefix(result.Call, namePrefix) || ptr.Deref(result.RetrySafe, true) ||
		!strings.Contains(result.Output, "connection reset") {
		t.Errorf("%+v", result)
	}
	if tries := requester.Objects.(*flaky).tries; tries != createTries {
		t.Errorf("%d tries", tries)
	}
}

// Without a connection, certainly nothing was created, and the answer says so.
func TestAnAPIServerThatCannotBeReached(t *testing.T) {
	t.Parallel()
	requester, err := identity.Local(&rest.Config{Host: "https://127.0.0.1:1"}, "team")
	must(t, err)
	session := connected(t, newTestServer(t, requester, 8), nil)
	for tool, arguments := range map[string]fields{"run_command": {"command": "x"}, "start_session": nil} {
		answer, result := use(t, session, tool, arguments)
		if !answer.IsError || !ptr.Deref(result.RetrySafe, false) || result.Call+result.Session != "" || !strings.Contains(result.Output, "connection refused") {
			t.Errorf("%s: %+v", tool, result)
		}
	}
}

// refusing carries out the first request to create an object, loses its response, and refuses the others.
type refusing struct {
	objects
	refusal error
	lost    map[string]bool
}

func (r *refusing) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if r.lost[o.GetName()] {
		return r.refusal
	}
	r.lost[o.GetName()] = true
	return errors.Join(r.objects.Create(ctx, o, opts...), errors.New("read tcp: connection reset by peer"))
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
			requester.Objects = &refusing{objects: requester.Objects, refusal: refusal, lost: map[string]bool{}}
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

// busy refuses the first requests.
type busy struct {
	objects
	refusals []error
}

func (b *busy) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if len(b.refusals) > 0 {
		refusal := b.refusals[0]
		b.refusals = b.refusals[1:]
		return refusal
	}
	return b.objects.Create(ctx, o, opts...)
}

// A request that the API server has no time for is repeated, and so is one that others kept from being counted against a quota.
func TestABusyAPIServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(echo)
	requester := f.local()
	requester.Objects = &busy{requester.Objects, []error{
		apierrors.NewTooManyRequests("later", 0), apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "team", errors.New("modified")),
	}}
	if answer, result := use(t, connected(t, newTestServer(t, requester, 8), nil), "run_command", fields{"command": "x"}); answer.IsError {
		t.Errorf("%+v", result)
	}
}

// swapped replaces a call that was created by another one, before anybody has read it.
type swapped struct {
	objects
	f *fixture
}

func (s *swapped) Create(ctx context.Context, call client.Object, opts ...client.CreateOption) error {
	must(s.f.t, s.objects.Create(ctx, call, opts...))
	must(s.f.t, s.f.admin.Delete(ctx, call.DeepCopyObject().(client.Object)))
	other := &v1alpha1.ToolCall{}
	other.Namespace, other.Name = call.GetNamespace(), call.GetName()
	other.Spec.Shell = &v1alpha1.ShellAction{Command: "not yours"}
	must(s.f.t, s.f.admin.Create(ctx, other))
	return nil
}

// Another call of the same name is not the call that was created.
func TestACallThatIsSwapped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(echo)
	requester := f.local()
	requester.Objects = &swapped{requester.Objects, f}
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
