package mcpserver

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
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
	if !answer.IsError || result.Reason != reasonUnknown || !strings.HasPrefix(result.Call, namePrefix) || ptr.Deref(result.RetrySafe, true) ||
		!strings.Contains(result.Output, "connection reset") {
		t.Errorf("%+v", result)
	}
	if tries := requester.Calls.(*flaky).tries; tries != createTries {
		t.Errorf("%d tries", tries)
	}
}

// uncancellable fails to cancel calls.
type uncancellable struct{ calls }

func (uncancellable) Cancel(context.Context, types.NamespacedName) error {
	return errors.New("connection refused")
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
	_, err := cancel(ctx, uncancellable{}, client.ObjectKey{Namespace: "n", Name: "c"})
	if err == nil || !strings.Contains(err.Error(), "may still run") {
		t.Error(err)
	}
}
