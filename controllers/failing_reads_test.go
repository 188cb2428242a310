package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
)

var errUnread = errors.New("the read failed")

// failingReads counts reads, and has them fail for which fails says so.
type failingReads struct {
	client.Reader
	seen  *int
	fails func(n int) bool
}

func (f failingReads) read(do func() error) error {
	*f.seen++
	if f.fails(*f.seen) {
		return errUnread
	}
	return do()
}

func (f failingReads) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return f.read(func() error { return f.Reader.Get(ctx, key, o, opts...) })
}

func (f failingReads) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return f.read(func() error { return f.Reader.List(ctx, list, opts...) })
}

// failRead has the n-th read of the reconciler from now on fail, in the cache or past it; 0 for none. It returns how
// many reads there were.
func (w *world) failRead(n int) (seen *int) {
	seen = new(int)
	fails := func(i int) bool { return i == n }
	w.reconciler.Objects = apicache.Reader{
		Reader: failingReads{w.client, seen, fails}, Live: failingReads{shared.GetAPIReader(), seen, fails},
	}
	w.reconciler.Requesters.Reader = failingReads{w.client, seen, fails}
	return seen
}

// jobCount is how many Jobs the namespace has.
func (w *world) jobCount() int {
	w.t.Helper()
	jobs := &batchv1.JobList{}
	if err := shared.GetAPIReader().List(context.Background(), jobs, client.InNamespace(w.namespace)); err != nil {
		w.t.Fatal(err)
	}
	return len(jobs.Items)
}

// Whatever a pass can't read: it ends with the error and writes nothing. The next pass goes on as if it had not been.
func TestAPassThatCannotReadAllItNeedsWritesNothing(t *testing.T) {
	large := func(c *v1alpha1.ToolCall) { c.Spec.Stdin = longText(6 << 10) }
	for name, tc := range map[string]struct {
		prepare func(*world) *v1alpha1.ToolCall
		// passes says that the pass without a failure changed something.
		passes func(*world, *v1alpha1.ToolCall) bool
	}{
		"deciding": {
			func(w *world) *v1alpha1.ToolCall { return w.call("c", large) },
			func(w *world, c *v1alpha1.ToolCall) bool { return w.hasJob(c) },
		},
		"recording the runner": {
			func(w *world) *v1alpha1.ToolCall {
				call := w.call("c", large)
				w.accept(call)
				job := w.job(call)
				w.runner(job, w.pod(job))
				return call
			},
			func(w *world, c *v1alpha1.ToolCall) bool { return w.get(c).Status.Runner != nil },
		},
		"looking after a lost runner": {
			func(w *world) *v1alpha1.ToolCall {
				call, pod := w.bound("c", large)
				w.podStatus(pod, terminated("Error", ""))
				return call
			},
			func(w *world, c *v1alpha1.ToolCall) bool { return w.get(c).Status.Reason == v1alpha1.ReasonPodLost },
		},
		"recording a result": {
			func(w *world) *v1alpha1.ToolCall {
				call := w.call("c", large)
				w.reconcile(call)
				w.start(call).report(w, call.UID, completed)
				return call
			},
			func(w *world, c *v1alpha1.ToolCall) bool { return w.get(c).Status.Reason == v1alpha1.ReasonCompleted },
		},
		"cancelling": {
			func(w *world) *v1alpha1.ToolCall {
				return w.call("c", large, func(c *v1alpha1.ToolCall) { c.Spec.Cancel = true })
			},
			func(w *world, c *v1alpha1.ToolCall) bool { return w.get(c).Status.Phase == v1alpha1.PhaseCancelled },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.environment("env", asDefault, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.MaxConcurrentCalls = ptr.To(int32(5)) })
			call := tc.prepare(w)
			before, jobs := w.get(call), w.jobCount()
			w.drainEvents()
			client := &flaky{Client: w.client, fail: func() failure { return succeeds }}
			w.reconciler.Client = client
			for n := 1; ; n++ {
				seen := w.failRead(n)
				err := w.passError(call)
				if *seen < n {
					// There were fewer reads: none failed.
					if err != nil || !tc.passes(w, call) || n < 3 {
						t.Fatalf("the pass without a failing read, after %d with one: %v, %+v", n-1, err, w.get(call).Status)
					}
					return
				}
				if !errors.Is(err, errUnread) {
					t.Errorf("read %d failed, and the pass says %v", n, err)
				}
				if now := w.get(call); now.ResourceVersion != before.ResourceVersion || w.jobCount() != jobs || client.writes != 0 || len(w.events.Events) != 0 {
					t.Fatalf("read %d failed, and the pass wrote: %d writes, %d Events, %+v", n, client.writes, len(w.events.Events), now.Status)
				}
			}
		})
	}
}

// passError runs one pass and returns its error.
func (w *world) passError(call *v1alpha1.ToolCall) error {
	_, err := w.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(call)})
	return err
}

func (w *world) drainEvents() {
	for len(w.events.Events) > 0 {
		<-w.events.Events
	}
}

// longText is text of a size, of which no two parts are the same.
func longText(size int) string {
	text := make([]byte, 0, size+8)
	for i := 0; len(text) < size; i++ {
		text = fmt.Appendf(text, "%07d\n", i)
	}
	return string(text[:size])
}
