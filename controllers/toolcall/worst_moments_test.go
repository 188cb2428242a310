package toolcall_test

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
	"toolcall.dev/operator/internal/testing/fixture"
)

// The kubelet's SIGTERM has the runner leave its result in the pod, and the Job is gone when that is read.
func TestACancelledCallEndsWithTheResultThatItsPodLeft(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call, pod := w.Bound("c")
	job := w.Job(call)
	token := w.Identity.Token(w.Namespace, job.Name, string(job.UID))
	w.Cancel(call)
	w.Elapse(time.Minute)
	fixture.Eventually(t, func() bool { w.Reconcile(call); return !w.HasJob(call) })
	w.StillRunning(call, "after the Job's deletion,")
	w.PodStatus(pod, fixture.Terminated("Error", words(call, token)))
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Reason != v1alpha1.ReasonCompleted {
		t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
	}
}

// A pod that the operator can't reach lives until its Job's deadline, which also covers the wait for the start.
func TestACallIsNotGivenUpBeforeItsPodsDeadline(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.StartTimeoutSeconds = ptr.To(int32(600)) })
	call, _ := w.Bound("c", func(c *v1alpha1.ToolCall) { c.Spec.TimeoutSeconds = ptr.To(int32(10)) })
	ends := jobspec.EndsBy(w.Job(call))
	w.Clock.Set(ends)
	w.Reconcile(call)
	w.StillRunning(call, "at its pod's deadline,")
	w.Elapse(2 * time.Minute)
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Reason != v1alpha1.ReasonPodLost {
		t.Errorf("long after it, the call is %s/%s", s.Phase, s.Reason)
	}
}

// A call is deleted and created again before its Job is its own. The runner of the first must not go on.
func TestTheRunnerOfADeletedCallIsRefusedAlsoWhenTheNameIsUsedAgain(t *testing.T) {
	w := fixture.NewWorld(t)
	_, r, call := w.GivenAPod()
	old := call.DeepCopy()
	r.Conn.Close()
	if err := w.Client.Delete(context.Background(), call); err != nil {
		t.Fatal(err)
	}
	again := w.Call("c")
	w.Restart()
	r.Config.Hello.Call = "c"
	r.Connect(w, string(old.UID))
	fixture.Eventually(t, func() bool {
		c := &v1alpha1.ToolCall{}
		return w.Client.Get(context.Background(), client.ObjectKeyFromObject(again), c) == nil && c.UID == again.UID
	})
	w.Reconcile(again)
	if m := r.Receive(); m.Refuse == nil {
		t.Errorf("the runner got %+v; want a refusal", m)
	}
}

func TestAClaimOfACallThatIsDeletedIsReleased(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	r := fixture.Only(w.WarmUp(env))
	call := w.Call("c")
	if err := w.FailingPass(call, fixture.TimesOut); err == nil {
		t.Fatal("the write did not fail")
	}
	if err := w.Client.Delete(context.Background(), call); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, func() bool { return !w.Cached(call) })
	w.Reconcile(call)
	if w.Hosts.IsBusy(r.Config.Hello.JobUID) {
		t.Error("the runner is kept for a call that is gone")
	}
	// The pool offers it again.
	w.Fill(env)
	next := w.Call("next")
	w.Reconcile(next)
	if m := r.Receive(); m.Assign == nil || m.Assign.CallName != "next" {
		t.Errorf("the runner got %+v; want the next call", m)
	}
}

// noJobPatch is an API server that takes no change of a Job.
type noJobPatch struct{ client.Client }

func (n noJobPatch) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if _, is := o.(*batchv1.Job); is {
		return apierrors.NewInternalError(context.DeadlineExceeded)
	}
	return n.Client.Patch(ctx, o, p, opts...)
}

// Its runner has gone by the next pass, which has the Job adopted all the same.
func TestThePodOfACallThatEndedIsNoFailureOfThePool(t *testing.T) {
	w := fixture.NewWorld(t)
	env, r, call := w.GivenAPod()
	name := w.Get(call).Status.Job
	r.Report(w, call.UID, fixture.Completed)
	w.Reconciler.Client = noJobPatch{w.Client}
	if err := w.PassError(call); err == nil || !w.Get(call).Status.Phase.Terminal() {
		t.Fatalf("the pass ended with %v, the call is %s", err, w.Get(call).Status.Phase)
	}
	w.Disconnect(r)
	w.Reconciler.Client = w.Client
	w.Reconcile(call)
	w.PodStatus(w.PodNamed(w.Get(call).Status.Pod), fixture.Terminated("Completed", ""))
	w.Fill(env)
	if job := w.JobNamed(name); !metav1.IsControlledBy(job, call) {
		t.Errorf("the Job isn't the call's own: %+v", job.ObjectMeta)
	}
	if problem := w.Problem(env); problem != "" {
		t.Errorf("the environment says %q", problem)
	}
}

func TestARunnerIsToldAlsoWhenItsJobCannotBeChanged(t *testing.T) {
	for _, what := range []string{"cancel", "assignment", "end"} {
		t.Run(what, func(t *testing.T) {
			w := fixture.NewWorld(t)
			env := w.Environment("env", fixture.Warm(1))
			r := fixture.Only(w.WarmUp(env))
			call := w.Call("c")
			if what == "assignment" {
				w.LoseTheAnswerToTheBinding(call)
				w.Restart()
				r.Connect(w, "")
			} else {
				w.Reconcile(call)
				r.Receive()
			}
			switch what {
			case "cancel":
				w.Cancel(call)
			case "end":
				r.Report(w, call.UID, fixture.Completed)
			}
			w.Elapse(time.Hour)
			w.Reconciler.Client = noJobPatch{w.Client}
			if _, err := w.Reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(call)}); err == nil {
				t.Error("the pass isn't tried again")
			}
			m := r.Receive()
			if got := map[string]bool{"cancel": m.Stop != nil, "assignment": m.Assign != nil, "end": m.Ack != nil}; !got[what] {
				t.Errorf("the runner got %+v", m)
			}
		})
	}
}

// Nobody but the command's own limit ends a call that could only start late.
func TestACallThatStartsLateHasItsWholeTime(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c", func(c *v1alpha1.ToolCall) { c.Spec.TimeoutSeconds = ptr.To(int32(600)) })
	w.Accept(call)
	job := w.Job(call)
	w.Elapse(10 * time.Minute)
	w.Restart()
	r := w.Runner(job, w.Pod(job))
	wait := w.Reconcile(call).RequeueAfter
	if m := r.Receive(); m.Assign == nil || wait == 0 {
		t.Fatalf("got %+v, looked at again after %s", m, wait)
	}
	w.Elapse(wait)
	w.Reconcile(call)
	if left := jobspec.EndsBy(w.Job(call)).Sub(w.Clock.Now()); left < 600*time.Second {
		t.Errorf("the Job ends the pod in %s", left)
	}
	before := w.Job(call).ResourceVersion
	w.Reconcile(call)
	if w.Job(call).ResourceVersion != before {
		t.Error("the Job is written again")
	}
}

// The environment may have been changed because its image was bad.
func TestACallDoesNotRunInAPodOfAnOutdatedTemplate(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	r := fixture.Only(w.WarmUp(env))
	call := w.Call("c")
	if err := w.FailingPass(call, fixture.TimesOut); err == nil {
		t.Fatal("the write did not fail")
	}
	w.Change(env, func() { env.Spec.Image = "example.com/patched:2" })
	w.Fill(env)
	w.Reconcile(call)
	if w.Get(call).Status.Job == r.Config.Hello.Job || !w.HasJob(call) {
		t.Errorf("the call has %q", w.Get(call).Status.Job)
	}
}

// The deadline of a Job may pass while no operator is there to hear its runner.
func TestACallWhoseJobEndedUnheardGetsAnother(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c")
	w.Accept(call)
	job := w.Job(call)
	first, now := job.UID, metav1.Now()
	job.Status.StartTime = &now
	for _, kind := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: "DeadlineExceeded", Message: "Job was active longer than specified deadline", LastTransitionTime: now,
		})
	}
	if err := w.Client.Status().Update(context.Background(), job); err != nil {
		t.Fatal(err)
	}
	w.Outage()
	fixture.Eventually(t, func() bool { w.Reconcile(call); return w.HasJob(call) && w.Job(call).UID != first })
	r := w.Runner(w.Job(call), w.Pod(w.Job(call)))
	w.Reconcile(call)
	if m := r.Receive(); m.Assign == nil {
		t.Errorf("got %+v; want the call", m)
	}
}

// The operator ends between the write that records the runner and the hand-over, and the call is cancelled. The next
// operator looks before the runner has dialed in.
func TestACancelBeforeTheHandOverIsSafeToRetryAfterAFailover(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	call := w.Call("c")
	w.Reconcile(call)
	r := w.Runner(w.Job(call), w.Pod(w.Job(call)))
	w.LoseTheAnswerToTheBinding(call)
	w.Cancel(call)
	r.Conn.Close()
	w.Restart()
	w.Reconcile(call)
	if !w.HasJob(call) {
		t.Fatal("the Job is deleted before its runner could say that it has no call")
	}
	r.Connect(w, "")
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseCancelled || !*s.RetrySafe {
		t.Errorf("ended %s/%s, %s", s.Phase, s.Reason, s.Message)
	}
}

// The end of a call is written, and the operator doesn't hear that: its place is free all the same.
func TestAnEndWhoseAnswerIsLostFreesTheCallsPlace(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.MaxConcurrentCalls = ptr.To(int32(1)) })
	first := w.Call("first")
	w.Reconcile(first)
	r := w.Start(first)
	next := w.Call("next")
	w.Reconcile(next)
	r.Report(w, first.UID, fixture.Completed)
	if err := w.FailingPass(first, fixture.AnswerIsLost); err == nil || !w.Get(first).Status.Phase.Terminal() {
		t.Fatalf("%v, and the call is %s", err, w.Get(first).Status.Phase)
	}
	fixture.Eventually(t, func() bool { return w.PassError(first) == nil })
	w.Elapse(2 * time.Second)
	w.Reconcile(next)
	if !w.HasJob(next) {
		t.Error("the next call waits for one that is over")
	}
}

func TestAnEndWhoseAnswerIsLostFreesTheRequestersBudget(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Pending = callqueue.PendingOptions{MaxCalls: 1, MaxBytes: 1 << 20}
	w.Rebuild()
	w.Environment("env", fixture.AsDefault)
	first := w.Call("first", by(w.Namespace))
	w.Accept(first)
	w.Cancel(first)
	if err := w.FailingPass(first, fixture.AnswerIsLost); err == nil || !w.Get(first).Status.Phase.Terminal() {
		t.Fatalf("%v, and the call is %s", err, w.Get(first).Status.Phase)
	}
	fixture.Eventually(t, func() bool { return w.PassError(first) == nil })
	w.LetIn(w.Call("next", by(w.Namespace)))
}

// The next operator may count a call as running whose end the one before it writes only then.
func TestAnEndThatThePredecessorWritesFreesTheCallsPlace(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.MaxConcurrentCalls = ptr.To(int32(1)) })
	first := w.Call("first")
	w.Reconcile(first)
	r := w.Start(first)
	before, hub := w.Reconciler, w.Hub
	next := w.Call("next")
	w.Restart()
	w.Reconcile(next)
	w.Hub = hub
	r.Report(w, first.UID, fixture.Completed)
	if _, err := before.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(first)}); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, func() bool { return !w.Cached(first) })
	w.Reconcile(first)
	w.Elapse(2 * time.Second)
	w.Reconcile(next)
	if !w.HasJob(next) {
		t.Error("the next call waits for one that is over")
	}
}

// A call that somebody holds with a finalizer ends when it is deleted: it must not be counted for ever.
func TestADeletedCallThatIsHeldByAFinalizerEnds(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	held := func(c *v1alpha1.ToolCall) { c.Finalizers = []string{"example.com/hold"} }
	waits := w.Call("waits", held)
	w.Accept(waits)
	running := w.Call("running", held)
	w.Reconcile(running)
	w.Start(running)
	for call, safe := range map[*v1alpha1.ToolCall]bool{waits: true, running: false} {
		if err := w.Client.Delete(context.Background(), call); err != nil {
			t.Fatal(err)
		}
		fixture.Eventually(t, func() bool {
			_ = w.PassError(call)
			return w.Get(call).Status.Phase == v1alpha1.PhaseCancelled && !w.HasJob(call)
		})
		if s := w.Get(call).Status; *s.RetrySafe != safe {
			t.Errorf("%s: %s, safe to retry: %t", call.Name, s.Message, *s.RetrySafe)
		}
		now := w.Get(call)
		now.Finalizers = nil
		if err := w.Client.Update(context.Background(), now, client.DisableReadYourWritesConsistency); err != nil {
			t.Fatal(err)
		}
	}
}

// A runner whose connection broke dials in again within a second.
func TestAWaitingPodOutlivesAMomentWithoutItsConnection(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(3))
	runners := w.WarmUp(env)
	before := map[string]bool{}
	for _, j := range w.Waiting(env) {
		before[j.Name] = true
	}
	w.Elapse(10 * time.Minute)
	w.Fill(env)
	for _, r := range runners {
		w.Disconnect(r)
	}
	w.Fill(env)
	w.Elapse(time.Second)
	names := slices.Sorted(maps.Keys(runners))
	back, away := runners[names[0]], runners[names[1]]
	back.Connect(w, "")
	w.Fill(env)
	for name := range before {
		if !w.HasNamedJob(name) {
			t.Errorf("%s is deleted: %s", name, w.Problem(env))
		}
	}
	w.Elapse(time.Minute)
	w.Fill(env)
	if !w.HasNamedJob(back.Config.Hello.Job) || w.HasNamedJob(away.Config.Hello.Job) {
		t.Error("the one that came back is deleted, or the one that did not is kept")
	}
}

// A claim is on a process, whether it is connected at the moment or not.
func TestAClaimedPodOutlivesAMomentWithoutItsConnection(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	r := fixture.Only(w.WarmUp(env))
	call := w.Call("c")
	w.Elapse(10 * time.Minute)
	w.Fill(env)
	before, once := w.Reconciler.Client, false
	w.Reconciler.Client = &fixture.Flaky{Client: w.Client, Fail: func() fixture.Failure {
		if !once {
			once = true
			w.Disconnect(r)
			w.Elapse(time.Minute)
			w.Fill(env)
		}
		return fixture.Succeeds
	}}
	w.Reconcile(call)
	w.Reconciler.Client = before
	if !once || !w.HasNamedJob(r.Config.Hello.Job) {
		t.Error("the Job of a claimed runner was deleted")
	}
}
