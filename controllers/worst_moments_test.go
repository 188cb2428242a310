package controllers_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	callqueue "toolcall.dev/operator/internal/queue"
)

// failingPass runs a pass whose writes go wrong.
func (w *world) failingPass(call *v1alpha1.ToolCall, how failure) error {
	before := w.reconciler.Client
	defer func() { w.reconciler.Client = before }()
	w.reconciler.Client = &flaky{Client: w.client, fail: func() failure { return how }}
	_, err := w.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(call)})
	return err
}

func (w *world) elapse(d time.Duration) { w.clock.set(w.clock.Now().Add(d)) }

// The kubelet's SIGTERM has the runner leave its result in the pod, and the Job is gone when that is read.
func TestACancelledCallEndsWithTheResultThatItsPodLeft(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call, pod := w.bound("c")
	job := w.job(call)
	token := w.identity.Token(w.namespace, job.Name, string(job.UID))
	w.cancel(call)
	w.elapse(time.Minute)
	eventually(t, func() bool { w.reconcile(call); return !w.hasJob(call) })
	w.stillRunning(call, "after the Job's deletion,")
	w.podStatus(pod, terminated("Error", words(call, token)))
	w.reconcile(call)
	if s := w.get(call).Status; s.Reason != v1alpha1.ReasonCompleted {
		t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
}

// A pod that the operator can't reach lives until its Job's deadline, which also covers the wait for the start.
func TestACallIsNotGivenUpBeforeItsPodsDeadline(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.StartTimeoutSeconds = ptr.To(int32(600)) })
	call, _ := w.bound("c", func(c *v1alpha1.ToolCall) { c.Spec.TimeoutSeconds = ptr.To(int32(10)) })
	ends := jobspec.EndsBy(w.job(call))
	w.clock.set(ends)
	w.reconcile(call)
	w.stillRunning(call, "at its pod's deadline,")
	w.elapse(2 * time.Minute)
	w.reconcile(call)
	if s := w.get(call).Status; s.Reason != v1alpha1.ReasonPodLost {
		t.Errorf("long after it, the call is %s/%s", s.Phase, s.Reason)
	}
}

// A call is deleted and created again before its Job is its own. The runner of the first must not go on.
func TestTheRunnerOfADeletedCallIsRefusedAlsoWhenTheNameIsUsedAgain(t *testing.T) {
	w := newWorld(t)
	_, r, call := w.givenAPod()
	old := call.DeepCopy()
	r.conn.Close()
	if err := w.client.Delete(context.Background(), call); err != nil {
		t.Fatal(err)
	}
	again := w.call("c")
	w.restart()
	r.config.Hello.Call = "c"
	r.connect(w, string(old.UID))
	eventually(t, func() bool {
		c := &v1alpha1.ToolCall{}
		return w.client.Get(context.Background(), client.ObjectKeyFromObject(again), c) == nil && c.UID == again.UID
	})
	w.reconcile(again)
	if m := r.receive(); m.Refuse == nil {
		t.Errorf("the runner got %+v; want a refusal", m)
	}
}

func TestAClaimOfACallThatIsDeletedIsReleased(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	r := only(w.warmUp(env))
	call := w.call("c")
	if err := w.failingPass(call, timesOut); err == nil {
		t.Fatal("the write did not fail")
	}
	if err := w.client.Delete(context.Background(), call); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return !w.cached(call) })
	w.reconcile(call)
	if w.hosts.IsBusy(r.config.Hello.JobUID) {
		t.Error("the runner is kept for a call that is gone")
	}
	if m := r.receive(); m.Refuse == nil {
		t.Errorf("the runner got %+v; want a refusal", m)
	}
}

// adoptionTime is for how long an ended call's runner is kept for its Job to be adopted.
const adoptionTime = time.Minute

// noJobPatch is an API server that takes no change of a Job.
type noJobPatch struct{ client.Client }

func (n noJobPatch) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if _, is := o.(*batchv1.Job); is {
		return apierrors.NewInternalError(context.DeadlineExceeded)
	}
	return n.Client.Patch(ctx, o, p, opts...)
}

func TestARunnerIsToldAlsoWhenItsJobCannotBeChanged(t *testing.T) {
	for _, what := range []string{"cancel", "assignment", "end"} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			env := w.environment("env", warm(1))
			r := only(w.warmUp(env))
			call := w.call("c")
			if what == "assignment" {
				w.loseTheAnswerToTheBinding(call)
				w.restart()
				r.connect(w, "")
			} else {
				w.reconcile(call)
				r.receive()
			}
			switch what {
			case "cancel":
				w.cancel(call)
			case "end":
				r.report(w, call.UID, completed)
			}
			w.elapse(time.Hour)
			w.reconciler.Client = noJobPatch{w.client}
			if what == "end" {
				// The end is written, and the runner kept for a while.
				if w.passError(call) == nil || !w.get(call).Status.Phase.Terminal() {
					t.Fatalf("the call is %s", w.get(call).Status.Phase)
				}
				w.elapse(2 * adoptionTime)
			}
			if _, err := w.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(call)}); err == nil {
				t.Error("the pass isn't tried again")
			}
			m := r.receive()
			if got := map[string]bool{"cancel": m.Cancel != nil, "assignment": m.Assign != nil, "end": m.Ack != nil}; !got[what] {
				t.Errorf("the runner got %+v", m)
			}
		})
	}
}

// Nobody but the command's own limit ends a call that could only start late.
func TestACallThatStartsLateHasItsWholeTime(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c", func(c *v1alpha1.ToolCall) { c.Spec.TimeoutSeconds = ptr.To(int32(600)) })
	w.accept(call)
	job := w.job(call)
	w.elapse(10 * time.Minute)
	w.restart()
	r := w.runner(job, w.pod(job))
	wait := w.reconcile(call).RequeueAfter
	if m := r.receive(); m.Assign == nil || wait == 0 {
		t.Fatalf("got %+v, looked at again after %s", m, wait)
	}
	w.elapse(wait)
	w.reconcile(call)
	if left := jobspec.EndsBy(w.job(call)).Sub(w.clock.Now()); left < 600*time.Second {
		t.Errorf("the Job ends the pod in %s", left)
	}
	before := w.job(call).ResourceVersion
	w.reconcile(call)
	if w.job(call).ResourceVersion != before {
		t.Error("the Job is written again")
	}
}

// The environment may have been changed because its image was bad.
func TestACallDoesNotRunInAPodOfAnOutdatedTemplate(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	r := only(w.warmUp(env))
	call := w.call("c")
	if err := w.failingPass(call, timesOut); err == nil {
		t.Fatal("the write did not fail")
	}
	w.change(env, func() { env.Spec.Image = "example.com/patched:2" })
	w.fill(env)
	w.reconcile(call)
	if w.get(call).Status.Job == r.config.Hello.Job || !w.hasJob(call) {
		t.Errorf("the call has %q", w.get(call).Status.Job)
	}
}

// The deadline of a Job may pass while no operator is there to hear its runner.
func TestACallWhoseJobEndedUnheardGetsAnother(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c")
	w.accept(call)
	job := w.job(call)
	first, now := job.UID, metav1.Now()
	job.Status.StartTime = &now
	for _, kind := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: "DeadlineExceeded", Message: "Job was active longer than specified deadline", LastTransitionTime: now,
		})
	}
	if err := w.client.Status().Update(context.Background(), job); err != nil {
		t.Fatal(err)
	}
	w.outage()
	eventually(t, func() bool { w.reconcile(call); return w.hasJob(call) && w.job(call).UID != first })
	r := w.runner(w.job(call), w.pod(w.job(call)))
	w.reconcile(call)
	if m := r.receive(); m.Assign == nil {
		t.Errorf("got %+v; want the call", m)
	}
}

// The operator ends between the write that records the runner and the hand-over, and the call is cancelled. The next
// operator looks before the runner has dialed in.
func TestACancelBeforeTheHandOverIsSafeToRetryAfterAFailover(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call := w.call("c")
	w.reconcile(call)
	r := w.runner(w.job(call), w.pod(w.job(call)))
	w.loseTheAnswerToTheBinding(call)
	w.cancel(call)
	r.conn.Close()
	w.restart()
	w.reconcile(call)
	if !w.hasJob(call) {
		t.Fatal("the Job is deleted before its runner could say that it has no call")
	}
	r.connect(w, "")
	w.reconcile(call)
	if s := w.get(call).Status; s.Phase != v1alpha1.PhaseCancelled || !*s.RetrySafe {
		t.Errorf("ended %s/%s, %s", s.Phase, s.Reason, s.Message)
	}
}

// The end of a call is written, and the operator doesn't hear that: its place is free all the same.
func TestAnEndWhoseAnswerIsLostFreesTheCallsPlace(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.MaxConcurrentCalls = ptr.To(int32(1)) })
	first := w.call("first")
	w.reconcile(first)
	r := w.start(first)
	next := w.call("next")
	w.reconcile(next)
	r.report(w, first.UID, completed)
	if err := w.failingPass(first, answerIsLost); err == nil || !w.get(first).Status.Phase.Terminal() {
		t.Fatalf("%v, and the call is %s", err, w.get(first).Status.Phase)
	}
	eventually(t, func() bool { return w.passError(first) == nil })
	w.elapse(2 * time.Second)
	w.reconcile(next)
	if !w.hasJob(next) {
		t.Error("the next call waits for one that is over")
	}
}

func TestAnEndWhoseAnswerIsLostFreesTheRequestersBudget(t *testing.T) {
	w := newWorld(t)
	w.pending = callqueue.BudgetOptions{MaxCalls: 1, MaxBytes: 1 << 20}
	w.rebuild()
	w.environment("env", asDefault)
	first := w.call("first", by(w.namespace))
	w.accept(first)
	w.cancel(first)
	if err := w.failingPass(first, answerIsLost); err == nil || !w.get(first).Status.Phase.Terminal() {
		t.Fatalf("%v, and the call is %s", err, w.get(first).Status.Phase)
	}
	eventually(t, func() bool { return w.passError(first) == nil })
	w.letIn(w.call("next", by(w.namespace)))
}

// The next operator may count a call as running whose end the one before it writes only then.
func TestAnEndThatThePredecessorWritesFreesTheCallsPlace(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.MaxConcurrentCalls = ptr.To(int32(1)) })
	first := w.call("first")
	w.reconcile(first)
	r := w.start(first)
	before, hub := w.reconciler, w.hub
	next := w.call("next")
	w.restart()
	w.reconcile(next)
	w.hub = hub
	r.report(w, first.UID, completed)
	if _, err := before.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(first)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return !w.cached(first) })
	w.reconcile(first)
	w.elapse(2 * time.Second)
	w.reconcile(next)
	if !w.hasJob(next) {
		t.Error("the next call waits for one that is over")
	}
}

// A call that somebody holds with a finalizer ends when it is deleted: it must not be counted for ever.
func TestADeletedCallThatIsHeldByAFinalizerEnds(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	held := func(c *v1alpha1.ToolCall) { c.Finalizers = []string{"example.com/hold"} }
	waits := w.call("waits", held)
	w.accept(waits)
	running := w.call("running", held)
	w.reconcile(running)
	w.start(running)
	for call, safe := range map[*v1alpha1.ToolCall]bool{waits: true, running: false} {
		if err := w.client.Delete(context.Background(), call); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool {
			_ = w.passError(call)
			return w.get(call).Status.Phase == v1alpha1.PhaseCancelled && !w.hasJob(call)
		})
		if s := w.get(call).Status; *s.RetrySafe != safe {
			t.Errorf("%s: %s, safe to retry: %t", call.Name, s.Message, *s.RetrySafe)
		}
		now := w.get(call)
		now.Finalizers = nil
		if err := w.client.Update(context.Background(), now, client.DisableReadYourWritesConsistency); err != nil {
			t.Fatal(err)
		}
	}
}

// A runner whose connection broke dials in again within a second.
func TestAWaitingPodOutlivesAMomentWithoutItsConnection(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(3))
	runners := w.warmUp(env)
	before := map[string]bool{}
	for _, j := range w.waiting(env) {
		before[j.Name] = true
	}
	w.elapse(10 * time.Minute)
	w.fill(env)
	for _, r := range runners {
		w.disconnect(r)
	}
	w.fill(env)
	w.elapse(time.Second)
	names := slices.Sorted(maps.Keys(runners))
	back, away := runners[names[0]], runners[names[1]]
	back.connect(w, "")
	w.fill(env)
	for name := range before {
		if !w.hasNamedJob(name) {
			t.Errorf("%s is deleted: %s", name, w.problem(env))
		}
	}
	w.elapse(time.Minute)
	w.fill(env)
	if !w.hasNamedJob(back.config.Hello.Job) || w.hasNamedJob(away.config.Hello.Job) {
		t.Error("the one that came back is deleted, or the one that did not is kept")
	}
}

// A claim is on a process, whether it is connected at the moment or not.
func TestAClaimedPodOutlivesAMomentWithoutItsConnection(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	r := only(w.warmUp(env))
	call := w.call("c")
	w.elapse(10 * time.Minute)
	w.fill(env)
	before, once := w.reconciler.Client, false
	w.reconciler.Client = &flaky{Client: w.client, fail: func() failure {
		if !once {
			once = true
			w.disconnect(r)
			w.elapse(time.Minute)
			w.fill(env)
		}
		return succeeds
	}}
	w.reconcile(call)
	w.reconciler.Client = before
	if !once || !w.hasNamedJob(r.config.Hello.Job) {
		t.Error("the Job of a claimed runner was deleted")
	}
}
