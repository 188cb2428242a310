package follow_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
)

func TestErrorsOfInvalidCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	there := f.create()
	good := v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "true"}}
	cases := map[string]struct {
		call *v1alpha1.ToolCall
		want string
		is   func(error) bool
	}{
		"an existing name": {
			&v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: there.Name}, Spec: good},
			"a call with a given name runs at most once", apierrors.IsAlreadyExists,
		},
		"a negative limit": {
			&v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace}, Spec: v1alpha1.ToolCallSpec{Shell: good.Shell, TimeoutSeconds: ptr.To(int32(-1))}},
			"spec.timeoutSeconds", apierrors.IsInvalid,
		},
		"a namespace that doesn't exist": {
			&v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: "nowhere"}, Spec: good}, `namespaces "nowhere" not found`, apierrors.IsNotFound,
		},
	}
	for name, c := range cases {
		_, err := f.clients().Create(t.Context(), c.call)
		if err == nil || !strings.Contains(err.Error(), c.want) || !c.is(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestCreateNamesTheCallOfALostResponse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	lost := interceptor.NewClient(f.calls, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			must(t, c.Create(ctx, o, opts...))
			return errors.New("connection reset by peer")
		},
	})
	_, err := follow.Clients{Calls: lost}.Create(t.Context(), &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace},
		Spec:       v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "true"}},
	})
	list := &v1alpha1.ToolCallList{}
	must(t, f.calls.List(t.Context(), list, client.InNamespace(f.namespace)))
	if len(list.Items) != 1 || err == nil || !strings.Contains(err.Error(), list.Items[0].Name) {
		t.Errorf("%d calls, and the error is %v", len(list.Items), err)
	}
}

func TestWaitReportsEachChangeAndReturnsTheEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call, s := f.create(), newRecorder()
	done := f.wait(t.Context(), follow.Clients{Calls: f.calls}, call, s.watcher())
	until(t, "first state", s.changed)
	f.start(call, "pod")
	until(t, "start", s.changed)
	f.finish(call, "out\n", "err\n")
	end := result(t, done)
	out, errs := s.text()
	if end.err != nil || end.call.Status.Phase != v1alpha1.PhaseSucceeded || out != "out\n" || errs != "err\n" {
		t.Errorf("got %v, %v, %q and %q", end.call, end.err, out, errs)
	}
	want := []v1alpha1.Phase{"", v1alpha1.PhaseRunning, v1alpha1.PhaseSucceeded}
	if !slices.Equal(s.phases, want) {
		t.Errorf("phases are %q", s.phases)
	}
}

func TestWaitForAFinishedCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call, s := f.create(), newRecorder()
	f.finish(call, "done", "")
	end := result(t, f.wait(t.Context(), f.clients(), call, s.watcher()))
	if out, _ := s.text(); end.err != nil || out != "done" {
		t.Errorf("got %v and %q", end.err, out)
	}
}

func TestWaitForADeletedCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call, s := f.create(), newRecorder()
	done := f.wait(t.Context(), f.clients(), call, s.watcher())
	until(t, "first state", s.changed)
	must(t, f.calls.Delete(t.Context(), call))
	if end := result(t, done); !errors.Is(end.err, follow.ErrDeleted) {
		t.Errorf("got %v", end.err)
	}
	_, err := f.clients().Wait(t.Context(), client.ObjectKeyFromObject(call), follow.Watcher{})
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), call.Name) {
		t.Errorf("of a call that doesn't exist: %v", err)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call, s := f.create(), newRecorder()
	ctx, cancel := context.WithCancel(t.Context())
	done := f.wait(ctx, f.clients(), call, s.watcher())
	until(t, "first state", s.changed)
	cancel()
	if end := result(t, done); !errors.Is(end.err, context.Canceled) {
		t.Errorf("got %v", end.err)
	}
}

// shortWatch is a watch that ends after its first event.
type shortWatch struct {
	watch.Interface
	events chan watch.Event
}

func newShortWatch(w watch.Interface) *shortWatch {
	s := &shortWatch{Interface: w, events: make(chan watch.Event, 1)}
	go func() {
		defer close(s.events)
		if event, ok := <-w.ResultChan(); ok {
			s.events <- event
		}
		w.Stop()
	}()
	return s
}

func (s *shortWatch) ResultChan() <-chan watch.Event { return s.events }

// brokenWatches fails every second watch, and ends the others after each event.
func brokenWatches(calls client.WithWatch, between func(n int32)) client.WithWatch {
	var n atomic.Int32
	return interceptor.NewClient(calls, interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			k := n.Add(1)
			between(k)
			if k%2 == 0 {
				return nil, apierrors.NewInternalError(errors.New("etcd is unavailable"))
			}
			w, err := c.Watch(ctx, list, opts...)
			if err != nil {
				return nil, err
			}
			return newShortWatch(w), nil
		},
	})
}

// The call continues while no watch is open: Wait must not miss its end.
func TestWaitSurvivesBrokenWatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call, s := f.create(), newRecorder()
	broken := brokenWatches(f.calls, func(n int32) {
		switch n {
		case 2:
			f.start(call, "pod")
		case 6:
			f.finish(call, "out", "")
		}
	})
	end := result(t, f.wait(t.Context(), follow.Clients{Calls: broken}, call, s.watcher()))
	out, _ := s.text()
	if end.err != nil || out != "out" || len(s.phases) != 3 {
		t.Errorf("got %v, %q, phases %q", end.err, out, s.phases)
	}
}

func TestWaitSeesADeletionBetweenWatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, again := range map[string]bool{"gone": false, "another of that name": true} {
		call := f.create()
		broken := brokenWatches(f.calls, func(n int32) {
			if n != 2 {
				return
			}
			must(t, f.calls.Delete(t.Context(), call))
			if again {
				other := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: call.Namespace, Name: call.Name}, Spec: call.Spec}
				must(t, f.calls.Create(t.Context(), other))
			}
		})
		end := result(t, f.wait(t.Context(), follow.Clients{Calls: broken}, call, follow.Watcher{}))
		if !errors.Is(end.err, follow.ErrDeleted) {
			t.Errorf("%s: got %v", name, end.err)
		}
	}
}

func TestCancelSetsTheField(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call := f.create()
	key := client.ObjectKeyFromObject(call)
	for range 2 {
		call, err := f.clients().Cancel(t.Context(), key, "")
		must(t, err)
		if !call.Spec.Cancel || call.UID == "" {
			t.Errorf("got %+v", call)
		}
	}
	must(t, f.calls.Get(t.Context(), key, call))
	if !call.Spec.Cancel {
		t.Error("spec.cancel is false")
	}
	_, err := f.clients().Cancel(t.Context(), types.NamespacedName{Namespace: f.namespace, Name: "none"}, "")
	if !apierrors.IsNotFound(err) {
		t.Errorf("of a call that doesn't exist: %v", err)
	}
}

// Another call of the same name is neither cancelled nor waited for.
func TestAnotherCallOfTheSameName(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call := f.create()
	key := client.ObjectKeyFromObject(call)
	if _, err := f.clients().Cancel(t.Context(), key, "of-an-earlier-call"); !errors.Is(err, follow.ErrDeleted) {
		t.Errorf("cancelled: %v", err)
	}
	if end := result(t, f.wait(t.Context(), f.clients(), call, follow.Watcher{UID: "of-an-earlier-call"})); !errors.Is(end.err, follow.ErrDeleted) {
		t.Errorf("waited: %v", end.err)
	}
	_, err := f.clients().Cancel(t.Context(), key, call.UID)
	must(t, err)
	must(t, f.calls.Get(t.Context(), key, call))
	if !call.Spec.Cancel {
		t.Error("the call itself is not cancelled")
	}
}
