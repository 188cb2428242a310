package controllers_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/retention"
)

func TestFinishedCallsGoWhenTheirTimeIsUp(t *testing.T) {
	w := newWorld(t)
	w.environment("env", func(e *v1alpha1.ExecutionEnvironment) { e.Spec.TTLSecondsAfterFinished = ptr.To(int32(100)) })
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
			w.clock.now = time.Now().Truncate(time.Second)
			call := w.call(name, func(c *v1alpha1.ToolCall) {
				c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: tc.env}
				c.Spec.TTLSecondsAfterFinished = tc.own
				c.Spec.Shell.Command = " "
			})
			w.reconcile(call)
			w.clock.now = w.clock.now.Add(tc.expect - time.Second)
			w.reconcile(call)
			w.get(call)
			w.clock.now = w.clock.now.Add(2 * time.Second)
			go func() { _ = w.finished.Schedule.Start(t.Context()) }()
			if again := <-w.expired; again != name {
				t.Errorf("looks again at %s", again)
			}
			w.reconcile(call)
			err := shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(call), &v1alpha1.ToolCall{})
			if !apierrors.IsNotFound(err) {
				t.Errorf("the call is still there: %v", err)
			}
		})
	}
}

func TestADeletedCallDismissesItsRunner(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c")
	w.reconcile(call)
	r := w.start(call)
	if err := w.client.Delete(context.Background(), call); err != nil {
		t.Fatal(err)
	}
	w.reconcile(call)
	if m := r.receive(); m.Refuse == nil {
		t.Errorf("got %+v; want a refusal", m)
	}
}

// cached says whether the operator's memory has a call.
func (w *world) cached(call *v1alpha1.ToolCall) bool {
	err := w.client.Get(context.Background(), client.ObjectKeyFromObject(call), &v1alpha1.ToolCall{}, client.DisableReadYourWritesConsistency)
	return err == nil
}

func TestTheCacheLetsGoOfACallThatEnded(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	running, ended := w.call("running"), w.call("ended")
	w.accept(running)
	w.accept(ended)
	w.finishOne(ended)
	eventually(t, func() bool { return !w.cached(ended) })
	if !w.cached(running) {
		t.Error("a call that has not ended isn't in the cache")
	}
}

// Right after the write the cache may still show the call as it was: it isn't ended a second time.
func TestACallThatEndedIsNotTakenForWhatTheCacheStillShows(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c")
	w.accept(call)
	w.use = &showing{Client: w.client, call: w.get(call)}
	w.rebuild()
	w.finishOne(call)
	before := w.get(call)
	for range 3 {
		if again := w.reconcile(call).RequeueAfter; again != 0 {
			t.Errorf("looks again after %s", again)
		}
	}
	if now := w.get(call); now.ResourceVersion != before.ResourceVersion {
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
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c")
	w.reconcile(call)
	r := w.start(call)
	r.report(w, call.UID, completed)
	w.reconcile(call)
	eventually(t, func() bool { return !w.cached(call) })
	w.restart()
	r.connect(w, string(call.UID))
	r.report(w, call.UID, completed)
	w.reconcile(call)
	if m := r.receive(); m.Ack == nil {
		t.Errorf("got %+v; want an acknowledgement", m)
	}
}

// What ended before this operator began is learned from the API server, and only that.
func TestCallsThatEndedBeforeAreLearned(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	w.clock.now = time.Now().Truncate(time.Second)
	begun := w.clock.now
	ended := w.call("ended", func(c *v1alpha1.ToolCall) { c.Spec.TTLSecondsAfterFinished = ptr.To(int32(60)) })
	w.accept(ended)
	w.finishOne(ended)
	denied := w.call("denied", func(c *v1alpha1.ToolCall) {
		c.Spec.Shell.Command = " "
		c.Spec.TTLSecondsAfterFinished = ptr.To(int32(30))
	})
	w.reconcile(denied)
	w.call("new")
	w.accept(w.call("accepted"))
	w.restart()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	watching, err := client.NewWithWatch(apiServer, client.Options{Scheme: shared.GetScheme()})
	if err != nil {
		t.Fatal(err)
	}
	if learned, err := w.seed(ctx, watching); err != nil || learned != 2 {
		t.Fatalf("%d calls learned, %v", learned, err)
	}
	go func() { _ = w.finished.Schedule.Start(ctx) }()
	for _, step := range []struct {
		after time.Duration
		name  string
	}{{40 * time.Second, "denied"}, {70 * time.Second, "ended"}} {
		w.clock.set(begun.Add(step.after))
		if got := <-w.expired; got != step.name {
			t.Errorf("after %s it is the turn of %s, want %s", step.after, got, step.name)
		}
	}
	w.clock.set(begun.Add(24 * time.Hour))
	time.Sleep(1500 * time.Millisecond)
	if len(w.expired) > 0 {
		t.Errorf("%s is woken, too", <-w.expired)
	}
	for _, call := range []*v1alpha1.ToolCall{ended, denied} {
		w.reconcile(call)
		err := shared.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(call), &v1alpha1.ToolCall{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s is still there: %v", call.Name, err)
		}
	}
}

// seed reads which calls of the namespace have ended.
func (w *world) seed(ctx context.Context, watching client.WithWatch) (int, error) {
	return (&retention.Seed{Finished: w.finished, Client: watching, Namespaces: []string{w.namespace}}).Read(ctx)
}
