package retention_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

func TestFinishedCallsGoWhenTheirTimeIsUp(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.TTLSecondsAfterFinished = ptr.To(int32(100)) })
	for name, tc := range map[string]struct {
		own    *int32
		env    string
		expect time.Duration
	}{
		"own":         {ptr.To(int32(10)), "env", 10 * time.Second},
		"environment": {nil, "env", 100 * time.Second},
		"default":     {nil, "nowhere", time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			w.Clock.At = time.Now().Truncate(time.Second)
			call := w.Call(name, func(c *v1alpha1.ToolCall) {
				c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: tc.env}
				c.Spec.TTLSecondsAfterFinished = tc.own
				c.Spec.Shell.Command = " "
			})
			w.Reconcile(call)
			w.Clock.At = w.Clock.At.Add(tc.expect - time.Second)
			w.Reconcile(call)
			w.Get(call)
			w.Clock.At = w.Clock.At.Add(2 * time.Second)
			go func() { _ = w.Finished.Schedule.Start(t.Context()) }()
			if again := fixture.Next(t, w.Expired); again != name {
				t.Errorf("looks again at %s", again)
			}
			w.Retire(call)
			err := fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(call), &v1alpha1.ToolCall{})
			if !apierrors.IsNotFound(err) {
				t.Errorf("the call is still there: %v", err)
			}
		})
	}
}

func TestTheCacheLetsGoOfACallThatEnded(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	running, ended := w.Call("running"), w.Call("ended")
	w.Accept(running)
	w.Accept(ended)
	w.FinishOne(ended)
	fixture.Eventually(t, func() bool { return !w.Cached(ended) })
	if !w.Cached(running) {
		t.Error("a call that has not ended isn't in the cache")
	}
}

// Right after the write the cache may still show the call as it was: it isn't ended a second time.
func TestACallThatEndedIsNotTakenForWhatTheCacheStillShows(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c")
	w.Accept(call)
	w.Use = &showing{Client: w.Client, call: w.Get(call)}
	w.Rebuild()
	w.FinishOne(call)
	before := w.Get(call)
	for range 3 {
		if again := w.Reconcile(call).RequeueAfter; again != 0 {
			t.Errorf("looks again after %s", again)
		}
	}
	if now := w.Get(call); now.ResourceVersion != before.ResourceVersion {
		t.Errorf("it was written again: %+v", now.Status)
	}
}

// showing is a client whose cache stands still for one call, until that has been given to a pod.
type showing struct {
	client.Client
	call *v1alpha1.ToolCall
}

func (s *showing) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	call, ok := o.(*v1alpha1.ToolCall)
	if !ok || key.Name != s.call.Name {
		return s.Client.Get(ctx, key, o, opts...)
	}
	if err := s.Client.Get(ctx, key, call, opts...); err != nil {
		s.call.DeepCopyInto(call)
		return nil
	}
	call.DeepCopyInto(s.call)
	return nil
}

// A runner whose acknowledgement was lost with its operator comes back to one that has never seen the call.
func TestALateRunnerOfAFinishedCallIsAnswered(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c")
	w.Reconcile(call)
	r := w.Start(call)
	r.Report(w, call.UID, fixture.Completed)
	w.Reconcile(call)
	fixture.Eventually(t, func() bool { return !w.Cached(call) })
	w.Restart()
	r.Connect(w, string(call.UID))
	r.Report(w, call.UID, fixture.Completed)
	w.Reconcile(call)
	if m := r.Receive(); m.Ack == nil {
		t.Errorf("got %+v; want an acknowledgement", m)
	}
}

// What ended before this operator began is learned from the API server, and only that.
func TestCallsThatEndedBeforeAreLearned(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	w.Clock.At = time.Now().Truncate(time.Second)
	begun := w.Clock.At
	ended := w.Call("ended", func(c *v1alpha1.ToolCall) { c.Spec.TTLSecondsAfterFinished = ptr.To(int32(60)) })
	w.Accept(ended)
	w.FinishOne(ended)
	denied := w.Call("denied", func(c *v1alpha1.ToolCall) {
		c.Spec.Shell.Command = " "
		c.Spec.TTLSecondsAfterFinished = ptr.To(int32(30))
	})
	w.Reconcile(denied)
	w.Call("new")
	w.Accept(w.Call("accepted"))
	w.Restart()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if learned, err := w.Seed(ctx); err != nil || learned != 2 {
		t.Fatalf("%d calls learned, %v", learned, err)
	}
	go func() { _ = w.Finished.Schedule.Start(ctx) }()
	for _, step := range []struct {
		after time.Duration
		name  string
	}{{40 * time.Second, "denied"}, {70 * time.Second, "ended"}} {
		w.Clock.Set(begun.Add(step.after))
		if got := fixture.Next(t, w.Expired); got != step.name {
			t.Errorf("after %s it is the turn of %s, want %s", step.after, got, step.name)
		}
	}
	w.Clock.Set(begun.Add(24 * time.Hour))
	time.Sleep(1500 * time.Millisecond)
	if len(w.Expired) > 0 {
		t.Errorf("%s is woken, too", fixture.Next(t, w.Expired))
	}
	for _, call := range []*v1alpha1.ToolCall{ended, denied} {
		w.Retire(call)
		err := fixture.Shared.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(call), &v1alpha1.ToolCall{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s is still there: %v", call.Name, err)
		}
	}
}
