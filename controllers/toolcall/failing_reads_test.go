package toolcall_test

import (
	"errors"
	"testing"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

// Whatever a pass can't read: it ends with the error and writes nothing. The next pass goes on as if it had not been.
func TestAPassThatCannotReadAllItNeedsWritesNothing(t *testing.T) {
	large := func(c *v1alpha1.ToolCall) { c.Spec.Stdin = fixture.LongText(6 << 10) }
	for name, tc := range map[string]struct {
		prepare func(*fixture.World) *v1alpha1.ToolCall
		// passes says that the pass without a failure changed something.
		passes func(*fixture.World, *v1alpha1.ToolCall) bool
	}{
		"deciding": {
			func(w *fixture.World) *v1alpha1.ToolCall { return w.Call("c", large) },
			func(w *fixture.World, c *v1alpha1.ToolCall) bool { return w.HasJob(c) },
		},
		"recording the runner": {
			func(w *fixture.World) *v1alpha1.ToolCall {
				call := w.Call("c", large)
				w.Accept(call)
				job := w.Job(call)
				w.Runner(job, w.Pod(job))
				return call
			},
			func(w *fixture.World, c *v1alpha1.ToolCall) bool { return w.Get(c).Status.Runner != nil },
		},
		"looking after a lost runner": {
			func(w *fixture.World) *v1alpha1.ToolCall {
				call, pod := w.Bound("c", large)
				w.PodStatus(pod, fixture.Terminated("Error", ""))
				return call
			},
			func(w *fixture.World, c *v1alpha1.ToolCall) bool {
				return w.Get(c).Status.Reason == v1alpha1.ReasonPodLost
			},
		},
		"recording a result": {
			func(w *fixture.World) *v1alpha1.ToolCall {
				call := w.Call("c", large)
				w.Reconcile(call)
				w.Start(call).Report(w, call.UID, fixture.Completed)
				return call
			},
			func(w *fixture.World, c *v1alpha1.ToolCall) bool {
				return w.Get(c).Status.Reason == v1alpha1.ReasonCompleted
			},
		},
		"cancelling": {
			func(w *fixture.World) *v1alpha1.ToolCall {
				return w.Call("c", large, func(c *v1alpha1.ToolCall) { c.Spec.Cancel = true })
			},
			func(w *fixture.World, c *v1alpha1.ToolCall) bool {
				return w.Get(c).Status.Phase == v1alpha1.PhaseCancelled
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			w.Environment("env", fixture.AsDefault, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.MaxConcurrentCalls = ptr.To(int32(5)) })
			// What an operator before had let in is read before the first pass, and not for one call.
			w.Reconcile(w.Call("earlier", func(c *v1alpha1.ToolCall) { c.Spec.Cancel = true }))
			call := tc.prepare(w)
			before, jobs := w.Get(call), w.JobCount()
			w.DrainEvents()
			client := &fixture.Flaky{Client: w.Client, Fail: func() fixture.Failure { return fixture.Succeeds }}
			w.Reconciler.Client = client
			for n := 1; ; n++ {
				seen := w.FailRead(n)
				err := w.PassError(call)
				if *seen < n {
					// There were fewer reads: none failed.
					if err != nil || !tc.passes(w, call) || n < 3 {
						t.Fatalf("the pass without a failing read, after %d with one: %v, %+v", n-1, err, w.Get(call).Status)
					}
					return
				}
				if !errors.Is(err, fixture.ErrUnread) {
					t.Errorf("read %d failed, and the pass says %v", n, err)
				}
				if now := w.Get(call); now.ResourceVersion != before.ResourceVersion || w.JobCount() != jobs || client.Writes != 0 || len(w.Events.Events) != 0 {
					t.Fatalf("read %d failed, and the pass wrote: %d writes, %d Events, %+v", n, client.Writes, len(w.Events.Events), now.Status)
				}
			}
		})
	}
}
