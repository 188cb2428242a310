package toolcall

import (
	"context"
	"slices"
	"testing"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/trigger"
)

// inEnvironment is a call whose status names an environment.
func inEnvironment(name, env string, changes ...change) *v1alpha1.ToolCall {
	o := observed(changes...)
	o.call.Name = name
	o.call.Status.Environment = &v1alpha1.ResolvedEnvironment{Name: env}
	return o.call
}

func TestTheEndOfASuspensionIsToldToThoseWhoWaitForIt(t *testing.T) {
	t.Parallel()
	queued := said(func(o *observation) *v1alpha1.ToolCallStatus {
		decided(o)
		return o.pending(v1alpha1.ReasonEnvironmentSuspended, "x")
	})
	elsewhere := inEnvironment("elsewhere", "env", queued)
	elsewhere.Namespace = "other"
	unsaid := observed().call
	unsaid.Name = "unsaid"
	c := newCluster(t,
		inEnvironment("waits", "env", queued), inEnvironment("also-waits", "env", queued), inEnvironment("runs", "env", bound),
		inEnvironment("other", "another", queued), elsewhere, unsaid,
	)
	env := func(suspend bool) *v1alpha1.ExecutionEnvironment {
		e := newDecision().In.DeepCopy()
		e.Spec.Suspend = suspend
		return e
	}
	h := c.onEnvironments()
	for name, tc := range map[string]struct {
		happen func(q trigger.Requests)
		told   bool
	}{
		"it is resumed": {func(q trigger.Requests) {
			h.Update(context.Background(), event.UpdateEvent{ObjectOld: env(true), ObjectNew: env(false)}, q)
		}, true},
		"it is deleted": {func(q trigger.Requests) { h.Delete(context.Background(), event.DeleteEvent{Object: env(true)}, q) }, true},
		"it is suspended": {func(q trigger.Requests) {
			h.Update(context.Background(), event.UpdateEvent{ObjectOld: env(false), ObjectNew: env(true)}, q)
		}, false},
		"it stays suspended": {func(q trigger.Requests) {
			h.Update(context.Background(), event.UpdateEvent{ObjectOld: env(true), ObjectNew: env(true)}, q)
		}, false},
		"it stays as it is": {func(q trigger.Requests) {
			h.Update(context.Background(), event.UpdateEvent{ObjectOld: env(false), ObjectNew: env(false)}, q)
		}, false},
		"it is created":       {func(q trigger.Requests) { h.Create(context.Background(), event.CreateEvent{Object: env(false)}, q) }, false},
		"something else does": {func(q trigger.Requests) { h.Generic(context.Background(), event.GenericEvent{Object: env(false)}, q) }, false},
		"it is something else": {func(q trigger.Requests) {
			h.Update(context.Background(), event.UpdateEvent{ObjectOld: unsaid, ObjectNew: unsaid}, q)
		}, false},
	} {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		tc.happen(q)
		var got []string
		for q.Len() > 0 {
			request, _ := q.Get()
			got = append(got, request.Name)
		}
		q.ShutDown()
		slices.Sort(got)
		var want []string
		if tc.told {
			want = []string{"also-waits", "waits"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: told are %q", name, got)
		}
	}
}

// An operator that has just begun finds out who runs and who waits, also where the Job is all that was written.
func TestTheOrderIsFoundOutFromTheCallsInFlight(t *testing.T) {
	t.Parallel()
	queued := said(func(o *observation) *v1alpha1.ToolCallStatus {
		decided(o)
		return o.pending(v1alpha1.ReasonQueued, "x")
	})
	jobOnly, stranger := observed(decided), observed(decided)
	jobOnly.call.Name, jobOnly.call.UID = "job-only", "job-only-uid"
	stranger.call.Name, stranger.call.UID = "stranger", "stranger-uid"
	ended := inEnvironment("ended", "env", bound)
	ended.Status.Phase = v1alpha1.PhaseFailed
	c := newCluster(t,
		inEnvironment("runs", "env", bound), inEnvironment("waits", "env", queued), inEnvironment("other", "another", bound),
		inEnvironment("undecided", "env", said((*observation).undecided)), ended, jobOnly.call, stranger.call,
	)
	ctx := context.Background()
	for _, o := range []*observation{jobOnly, stranger} {
		job := jobFor(t, c, o)
		if o == stranger {
			job.OwnerReferences = nil
		}
		if err := c.Client.Create(ctx, job); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Seed(ctx); err != nil {
		t.Fatal(err)
	}
	name := callIn("ns", "env")
	next := holderOf(jobOnly.call)
	next.Name.Name, next.UID = "next", "next-uid"
	if c.Queue.Admit(name, 2, next) {
		t.Error("two don't run")
	}
	if waiting := c.Queue.Waiting(); len(waiting) != 1 || waiting[name] != 2 {
		t.Errorf("wait: %v", waiting)
	}
	if !c.Queue.Admit(name, 4, next) {
		t.Error("more than two run, or more than one waits")
	}
}
