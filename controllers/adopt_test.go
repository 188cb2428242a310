package controllers_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

func TestACallTakesAWaitingPod(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(2))
	runners := w.warmUp(env)
	if len(runners) != 2 {
		t.Fatalf("%d pods wait", len(runners))
	}
	call := w.call("c")
	w.reconcile(call)
	s := w.get(call).Status
	if s.Phase != v1alpha1.PhaseRunning || s.Timings.Path != v1alpha1.PathWarm || runners[s.Job] == nil {
		t.Fatalf("after one pass the status is %+v", s)
	}
	r := runners[s.Job]
	if m := r.receive(); m.Assign == nil || m.Assign.CallUID != string(call.UID) || m.Assign.CallName != "c" {
		t.Fatalf("got %+v", m)
	}
	w.changeHands(call)
	job := w.jobNamed(s.Job)
	if !metav1.IsControlledBy(job, call) || job.Spec.ActiveDeadlineSeconds == nil || job.Labels[v1alpha1.LabelCall] != string(call.UID) {
		t.Errorf("the Job isn't the call's own: %+v", job.ObjectMeta)
	}
	if w.get(call).Status.Runner.Decision == "" {
		t.Error("the call doesn't keep what was decided")
	}
	r.report(w, call.UID, completed)
	w.reconcile(call)
	if now := w.get(call); now.Status.Phase != v1alpha1.PhaseSucceeded || r.receive().Ack == nil {
		t.Errorf("ended %+v", now.Status)
	}
	w.fill(env)
	if n := len(w.waiting(env)); n != 2 {
		t.Errorf("%d pods wait after the refill", n)
	}
	if w.hasJob(call) {
		t.Error("the call has a Job of its own besides")
	}
}

// givenAPod makes a call that took the only pod that waited, and whose runner has it.
func (w *world) givenAPod() (*v1alpha1.ExecutionEnvironment, *runner, *v1alpha1.ToolCall) {
	w.t.Helper()
	env := w.environment("env", warm(1))
	r := only(w.warmUp(env))
	call := w.call("c")
	w.reconcile(call)
	r.receive()
	return env, r, call
}

// changeHands lets a call that took a waiting pod run until that pod's Job is the call's own.
func (w *world) changeHands(call *v1alpha1.ToolCall) {
	w.t.Helper()
	w.clock.now = w.clock.now.Add(100 * time.Millisecond)
	w.reconcile(call)
}

// A short call's result is written first; the runner is let go when the Job has changed hands.
func TestTheJobOfAShortCallChangesHandsToo(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	r := only(w.warmUp(env))
	call := w.call("c")
	w.reconcile(call)
	name := w.get(call).Status.Job
	if metav1.IsControlledBy(w.jobNamed(name), call) {
		t.Error("the Job changed hands before the call could end")
	}
	r.receive()
	r.report(w, call.UID, completed)
	w.reconcile(call)
	if m := r.receive(); m.Ack == nil {
		t.Fatalf("got %+v", m)
	}
	if !metav1.IsControlledBy(w.jobNamed(name), call) {
		t.Error("the Job is still the pool's")
	}
	w.fill(env)
	if n := len(w.waiting(env)); n != 1 {
		t.Errorf("%d pods wait", n)
	}
}

// The result is written, and then the operator dies: the next one finds the runner that still waits to hear of it.
func TestTheJobOfAFinishedCallChangesHandsAfterACrash(t *testing.T) {
	w := newWorld(t)
	_, r, call := w.givenAPod()
	r.report(w, call.UID, completed)
	writes := 0
	w.use = &flaky{Client: w.client, fail: func() failure { writes++; return map[bool]failure{true: succeeds, false: timesOut}[writes == 1] }}
	hub := w.hub
	w.rebuild()
	if _, err := w.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(call)}); err == nil {
		t.Fatal("the write was not cut short")
	}
	if s := w.get(call).Status; s.Phase != v1alpha1.PhaseSucceeded || hub.Len() != 1 {
		t.Fatalf("ended %+v, %d runners", s, hub.Len())
	}
	w.use = nil
	w.rebuild()
	w.reconcile(call)
	if m := r.receive(); m.Ack == nil {
		t.Fatalf("got %+v", m)
	}
	if !metav1.IsControlledBy(w.jobNamed(w.get(call).Status.Job), call) {
		t.Error("the Job is still the pool's")
	}
}

// What was decided is kept with the call: a crash and a change of the environment change nothing.
func TestARunningCallKeepsWhatWasDecided(t *testing.T) {
	w := newWorld(t)
	env, r, call := w.givenAPod()
	before := w.get(call).Status
	w.restart()
	if err := w.client.Delete(context.Background(), env); err != nil {
		t.Fatal(err)
	}
	r.connect(w, string(call.UID))
	w.changeHands(call)
	job := w.jobNamed(before.Job)
	if !metav1.IsControlledBy(job, call) || job.Spec.ActiveDeadlineSeconds == nil {
		t.Errorf("the Job isn't the call's own: %+v", job.ObjectMeta)
	}
	if diff := cmp.Diff(before, w.get(call).Status); diff != "" {
		t.Errorf("the status changed: %s", diff)
	}
	r.report(w, call.UID, completed)
	w.reconcile(call)
	s := w.get(call).Status
	if s.Phase != v1alpha1.PhaseSucceeded || s.Runner.Decision != "" {
		t.Errorf("ended %+v", s)
	}
}

func TestAnEmptyPoolDoesNotKeepACallWaiting(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	w.warmUp(env)
	first, second := w.call("first"), w.call("second")
	w.reconcile(first)
	w.accept(second)
	if p := w.get(first).Status.Timings.Path; p != v1alpha1.PathWarm {
		t.Errorf("the first call went %s", p)
	}
	if s := w.get(second).Status; s.Timings.Path != v1alpha1.PathCold || !w.hasJob(second) {
		t.Errorf("the second call: %+v", s)
	}
}

// The write that records the pod succeeded, and the operator ended before anything followed from it.
func TestACrashRightAfterTheAdoptionLosesNothing(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	r := only(w.warmUp(env))
	call := w.call("c")
	f := &flaky{Client: w.client, fail: func() failure { return answerIsLost }}
	w.use = f
	w.rebuild()
	_, err := w.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(call)})
	if err == nil || w.get(call).Status.Runner == nil {
		t.Fatalf("the write was not cut short: %v", err)
	}
	w.use = nil
	w.restart()
	r.connect(w, "")
	// The pool must not offer what a call was given.
	w.fill(env)
	if n := w.offered(env); n != 0 {
		t.Fatalf("%d runners are offered", n)
	}
	eventually(t, func() bool {
		w.reconcile(call)
		return w.hub.SessionByKey(w.get(call).Status.Runner.KeyHash).CallUID() != ""
	})
	if m := r.receive(); m.Assign == nil || m.Assign.CallUID != string(call.UID) {
		t.Fatalf("got %+v", m)
	}
	r.report(w, call.UID, completed)
	w.reconcile(call)
	if s := w.get(call).Status; s.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("ended %+v", s)
	}
}

func TestACrashBeforeTheJobChangedHandsLosesNothing(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	r := only(w.warmUp(env))
	call := w.call("c")
	writes := 0
	f := &flaky{Client: w.client, fail: func() failure { writes++; return map[bool]failure{true: succeeds, false: timesOut}[writes == 1] }}
	w.use = f
	w.rebuild()
	_, _ = w.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(call)})
	r.receive()
	w.use = nil
	w.restart()
	r.connect(w, string(call.UID))
	w.fill(env)
	r.report(w, call.UID, completed)
	w.reconcile(call)
	if s := w.get(call).Status; s.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("ended %+v", s)
	}
}

// The runner found no operator for long, left its result in the pod and ended. The pool must not take that for a
// waiting pod which ended.
func TestTheResultInAPodOfThePoolIsNotThrownAway(t *testing.T) {
	w := newWorld(t)
	env, r, call := w.givenAPod()
	r.conn.Close()
	w.restart()
	job := &w.waiting(env)[0]
	token := w.identity.Token(w.namespace, job.Name, string(job.UID))
	w.podStatus(w.podNamed(w.get(call).Status.Pod), terminated("Completed", words(call, token)))
	w.completeJob(job)
	w.fill(env)
	w.reconcile(call)
	if s := w.get(call).Status; s.Reason != v1alpha1.ReasonCompleted {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
	eventually(t, func() bool { w.fill(env); return !w.hasNamedJob(job.Name) && len(w.waiting(env)) == 1 })
}

// The answer to the write that records the pod is lost, and its runner goes away for a moment: the call looks
// again and must not keep a second runner from others.
func TestARunnerThatWasTakenInVainIsLetGo(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	only(w.warmUp(env))
	call := w.call("c", func(c *v1alpha1.ToolCall) { c.Spec.Cancel = true })
	taken := w.hosts.Claim(w.waiting(env)[0].Annotations[jobspec.AnnotationTemplate], client.ObjectKeyFromObject(call), string(call.UID))
	if taken == nil {
		t.Fatal("no runner waits")
	}
	w.reconcile(call)
	w.reconcile(call)
	if w.hosts.Claimed(string(call.UID)) != nil {
		t.Error("the runner is still kept for a call that ended without it")
	}
}

func TestOnePodIsGivenToOneCall(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	w.warmUp(env)
	a, b := w.call("a"), w.call("b")
	w.reconcile(a)
	w.fill(env)
	w.accept(b)
	sa, sb := w.get(a).Status, w.get(b).Status
	if sa.Job == sb.Job || sb.Timings.Path != v1alpha1.PathCold {
		t.Errorf("a runs in %s, b in %s (%s)", sa.Job, sb.Job, sb.Timings.Path)
	}
}
