package toolcall_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/fixture"
)

func TestACallTakesAWaitingPod(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(2))
	runners := w.WarmUp(env)
	if len(runners) != 2 {
		t.Fatalf("%d pods wait", len(runners))
	}
	call := w.Call("c")
	w.Reconcile(call)
	s := w.Get(call).Status
	if s.Phase != v1alpha1.PhaseRunning || s.Timings.Path != v1alpha1.PathWarm || runners[s.Job] == nil {
		t.Fatalf("after one pass the status is %+v", s)
	}
	r := runners[s.Job]
	if m := r.Receive(); m.Assign == nil || m.Assign.CallUID != string(call.UID) || m.Assign.CallName != "c" {
		t.Fatalf("got %+v", m)
	}
	w.ChangeHands(call)
	job := w.JobNamed(s.Job)
	if !metav1.IsControlledBy(job, call) || job.Spec.ActiveDeadlineSeconds == nil || job.Labels[v1alpha1.LabelCall] != string(call.UID) {
		t.Errorf("the Job isn't the call's own: %+v", job.ObjectMeta)
	}
	if w.Get(call).Status.Runner.Decision == "" {
		t.Error("the call doesn't keep what was decided")
	}
	r.Report(w, call.UID, fixture.Completed)
	w.Reconcile(call)
	if now := w.Get(call); now.Status.Phase != v1alpha1.PhaseSucceeded || r.Receive().Ack == nil {
		t.Errorf("ended %+v", now.Status)
	}
	w.Fill(env)
	if n := len(w.Waiting(env)); n != 2 {
		t.Errorf("%d pods wait after the refill", n)
	}
	if w.HasJob(call) {
		t.Error("the call has a Job of its own besides")
	}
}

// A short call's result is written first; the runner is let go when the Job has changed hands.
func TestTheJobOfAShortCallChangesHandsToo(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	r := fixture.Only(w.WarmUp(env))
	call := w.Call("c")
	w.Reconcile(call)
	name := w.Get(call).Status.Job
	if metav1.IsControlledBy(w.JobNamed(name), call) {
		t.Error("the Job changed hands before the call could end")
	}
	r.Receive()
	r.Report(w, call.UID, fixture.Completed)
	w.Reconcile(call)
	if m := r.Receive(); m.Ack == nil {
		t.Fatalf("got %+v", m)
	}
	if !metav1.IsControlledBy(w.JobNamed(name), call) {
		t.Error("the Job is still the pool's")
	}
	w.Fill(env)
	if n := len(w.Waiting(env)); n != 1 {
		t.Errorf("%d pods wait", n)
	}
}

// The result is written, and then the operator dies: the next one finds the runner that still waits to hear of it.
func TestTheJobOfAFinishedCallChangesHandsAfterACrash(t *testing.T) {
	w := fixture.NewWorld(t)
	_, r, call := w.GivenAPod()
	r.Report(w, call.UID, fixture.Completed)
	writes := 0
	w.Use = &fixture.Flaky{Client: w.Client, Fail: func() fixture.Failure {
		writes++
		return map[bool]fixture.Failure{true: fixture.Succeeds, false: fixture.TimesOut}[writes == 1]
	}}
	hub := w.Hub
	w.Rebuild()
	if _, err := w.Reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(call)}); err == nil {
		t.Fatal("the write was not cut short")
	}
	if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseSucceeded || hub.Len() != 1 {
		t.Fatalf("ended %+v, %d runners", s, hub.Len())
	}
	w.Use = nil
	w.Rebuild()
	w.Reconcile(call)
	if m := r.Receive(); m.Ack == nil {
		t.Fatalf("got %+v", m)
	}
	if !metav1.IsControlledBy(w.JobNamed(w.Get(call).Status.Job), call) {
		t.Error("the Job is still the pool's")
	}
}

// What was decided is kept with the call: a crash and a change of the environment change nothing.
func TestARunningCallKeepsWhatWasDecided(t *testing.T) {
	w := fixture.NewWorld(t)
	env, r, call := w.GivenAPod()
	before := w.Get(call).Status
	w.Restart()
	if err := w.Client.Delete(context.Background(), env); err != nil {
		t.Fatal(err)
	}
	r.Connect(w, string(call.UID))
	w.ChangeHands(call)
	job := w.JobNamed(before.Job)
	if !metav1.IsControlledBy(job, call) || job.Spec.ActiveDeadlineSeconds == nil {
		t.Errorf("the Job isn't the call's own: %+v", job.ObjectMeta)
	}
	if diff := cmp.Diff(before, w.Get(call).Status); diff != "" {
		t.Errorf("the status changed: %s", diff)
	}
	r.Report(w, call.UID, fixture.Completed)
	w.Reconcile(call)
	s := w.Get(call).Status
	if s.Phase != v1alpha1.PhaseSucceeded || s.Runner.Decision != "" {
		t.Errorf("ended %+v", s)
	}
}

func TestAnEmptyPoolDoesNotKeepACallWaiting(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	w.WarmUp(env)
	first, second := w.Call("first"), w.Call("second")
	w.Reconcile(first)
	w.Accept(second)
	if p := w.Get(first).Status.Timings.Path; p != v1alpha1.PathWarm {
		t.Errorf("the first call went %s", p)
	}
	if s := w.Get(second).Status; s.Timings.Path != v1alpha1.PathCold || !w.HasJob(second) {
		t.Errorf("the second call: %+v", s)
	}
}

// The write that records the pod succeeded, and the operator ended before anything followed from it.
func TestACrashRightAfterTheAdoptionLosesNothing(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	r := fixture.Only(w.WarmUp(env))
	call := w.Call("c")
	f := &fixture.Flaky{Client: w.Client, Fail: func() fixture.Failure { return fixture.AnswerIsLost }}
	w.Use = f
	w.Rebuild()
	_, err := w.Reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(call)})
	if err == nil || w.Get(call).Status.Runner == nil {
		t.Fatalf("the write was not cut short: %v", err)
	}
	w.Use = nil
	w.Restart()
	r.Connect(w, "")
	// The pool must not offer what a call was given.
	w.Fill(env)
	if n := w.Offered(env); n != 0 {
		t.Fatalf("%d runners are offered", n)
	}
	fixture.Eventually(t, func() bool {
		w.Reconcile(call)
		return !w.Hub.RunnerByKey(w.Get(call).Status.Runner.KeyHash).IsWaiting()
	})
	if m := r.Receive(); m.Assign == nil || m.Assign.CallUID != string(call.UID) {
		t.Fatalf("got %+v", m)
	}
	r.Report(w, call.UID, fixture.Completed)
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("ended %+v", s)
	}
}

func TestACrashBeforeTheJobChangedHandsLosesNothing(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	r := fixture.Only(w.WarmUp(env))
	call := w.Call("c")
	writes := 0
	f := &fixture.Flaky{Client: w.Client, Fail: func() fixture.Failure {
		writes++
		return map[bool]fixture.Failure{true: fixture.Succeeds, false: fixture.TimesOut}[writes == 1]
	}}
	w.Use = f
	w.Rebuild()
	_, _ = w.Reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(call)})
	r.Receive()
	w.Use = nil
	w.Restart()
	r.Connect(w, string(call.UID))
	w.Fill(env)
	r.Report(w, call.UID, fixture.Completed)
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("ended %+v", s)
	}
}

// The runner found no operator for long, left its result in the pod and ended. The pool must not take that for a
// waiting pod which ended.
func TestTheResultInAPodOfThePoolIsNotThrownAway(t *testing.T) {
	w := fixture.NewWorld(t)
	env, r, call := w.GivenAPod()
	r.Conn.Close()
	w.Restart()
	job := &w.Waiting(env)[0]
	token := w.Identity.Token(w.Namespace, job.Name, string(job.UID))
	w.PodStatus(w.PodNamed(w.Get(call).Status.Pod), fixture.Terminated("Completed", words(call, token)))
	w.CompleteJob(job)
	w.Fill(env)
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Reason != v1alpha1.ReasonCompleted {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
	fixture.Eventually(t, func() bool { w.Fill(env); return !w.HasNamedJob(job.Name) && len(w.Waiting(env)) == 1 })
}

// The answer to the write that records the pod is lost, and its runner goes away for a moment: the call looks
// again and must not keep a second runner from others.
func TestARunnerThatWasTakenInVainIsLetGo(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	fixture.Only(w.WarmUp(env))
	call := w.Call("c", func(c *v1alpha1.ToolCall) { c.Spec.Cancel = true })
	taken := w.Hosts.Claim(w.Waiting(env)[0].Annotations[jobspec.AnnotationTemplate], host.Claimant{Kind: wire.KindCall, NamespacedName: client.ObjectKeyFromObject(call)}, string(call.UID))
	if taken == nil {
		t.Fatal("no runner waits")
	}
	w.Reconcile(call)
	w.Reconcile(call)
	if w.Hosts.IsBusy(taken.Hello().JobUID) {
		t.Error("the runner is still kept for a call that ended without it")
	}
}

func TestOnePodIsGivenToOneCall(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	w.WarmUp(env)
	a, b := w.Call("a"), w.Call("b")
	w.Reconcile(a)
	w.Fill(env)
	w.Accept(b)
	sa, sb := w.Get(a).Status, w.Get(b).Status
	if sa.Job == sb.Job || sb.Timings.Path != v1alpha1.PathCold {
		t.Errorf("a runs in %s, b in %s (%s)", sa.Job, sb.Job, sb.Timings.Path)
	}
}
