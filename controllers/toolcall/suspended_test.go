package toolcall_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/fixture"
)

func inQueue(env *v1alpha1.ExecutionEnvironment) {
	fixture.AsDefault(env)
	env.Spec.Queues = []string{"agents"}
	env.Labels = map[string]string{jobspec.LabelQueuePriority: "low"}
	env.Spec.StartTimeoutSeconds = ptr.To(int32(30))
}

func TestASuspendedCallWaitsWithoutATimeLimit(t *testing.T) {
	w := fixture.NewWorld(t)
	w.WithQueue()
	w.Environment("env", inQueue)
	call := w.Call("c")
	w.Reconcile(call)
	now := w.Get(call)
	if now.Status.Phase != v1alpha1.PhasePending || fixture.WhyNotStarted(now) != v1alpha1.ReasonSuspended || fixture.Condition(now, v1alpha1.ConditionAccepted) != metav1.ConditionTrue {
		t.Fatalf("after one pass the status is %+v", now.Status)
	}
	started := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionStarted)
	if !strings.Contains(started.Message, `queue "agents"`) {
		t.Errorf("it says %q", started.Message)
	}
	w.Clock.At = w.Clock.At.Add(24 * time.Hour)
	version := w.Get(call).ResourceVersion
	if wake := w.Reconcile(call).RequeueAfter; wake != 0 {
		t.Errorf("a call that nothing is known of to come looks again after %s", wake)
	}
	if again := w.Get(call); again.ResourceVersion != version {
		t.Errorf("it was written again: %+v", again.Status)
	}

	name := w.Job(call).Name
	w.LetRun(name, &w.Clock.At)
	w.Reconcile(call)
	if now := w.Get(call); fixture.WhyNotStarted(now) != v1alpha1.ReasonNotStarted || now.Status.Phase != v1alpha1.PhasePending {
		t.Fatalf("let run, the status is %+v", now.Status)
	}
	w.Clock.At = w.Clock.At.Add(29 * time.Second)
	w.Reconcile(call)
	if phase := w.Get(call).Status.Phase; phase.Terminal() {
		t.Errorf("it was %s before its time was up", phase)
	}
	w.Clock.At = w.Clock.At.Add(2 * time.Second)
	w.Reconcile(call)
	if s := w.Get(call).Status; s.Reason != v1alpha1.ReasonStartTimeout || !*s.RetrySafe {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
}

// A queue takes back what it gave, for a more important Job: nothing had started, and the call waits again.
func TestACallThatIsSuspendedAgainBeforeItStartedWaitsAgain(t *testing.T) {
	w := fixture.NewWorld(t)
	w.WithQueue()
	w.Environment("env", inQueue)
	call := w.Call("c")
	w.Reconcile(call)
	name := w.Job(call).Name
	w.LetRun(name, &w.Clock.At)
	first := w.Pod(w.Job(call))
	w.Runner(w.Job(call), first)
	w.LetRun(name, nil)
	w.PodStatus(first, func(s *corev1.PodStatus) { s.Phase = corev1.PodFailed })
	w.Reconcile(call)
	if now := w.Get(call); fixture.WhyNotStarted(now) != v1alpha1.ReasonSuspended || now.Status.Runner != nil {
		t.Fatalf("suspended again, the status is %+v", now.Status)
	}
	// The pod of the first time lingers: it says nothing of the second.
	first.Finalizers = []string{"toolcall.dev/test"}
	if err := w.Client.Update(context.Background(), first); err != nil {
		t.Fatal(err)
	}
	if err := w.Client.Delete(context.Background(), first); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.Client.Get(context.Background(), client.ObjectKeyFromObject(first), first)
		first.Finalizers = nil
		_ = w.Client.Update(context.Background(), first)
	})
	w.Clock.At = w.Clock.At.Add(time.Hour)
	w.LetRun(name, &w.Clock.At)
	fixture.Eventually(t, func() bool {
		err := w.Client.Get(context.Background(), client.ObjectKeyFromObject(first), first)
		return err == nil && first.DeletionTimestamp != nil
	})
	w.Reconcile(call)
	if now := w.Get(call); now.Status.Phase != v1alpha1.PhasePending || fixture.WhyNotStarted(now) != v1alpha1.ReasonNotStarted {
		t.Errorf("let run again, the status is %+v", now.Status)
	}
}

// One whose command may have started isn't run again, whatever a queue does with its Job.
func TestARunningCallThatIsSuspendedIsLostAndNotRunAgain(t *testing.T) {
	w := fixture.NewWorld(t)
	w.WithQueue()
	w.Environment("env", inQueue)
	call := w.Call("c")
	name, pod, r := w.StartQueued(call)
	w.LetRun(name, nil)
	r.Conn.Close()
	if err := w.Client.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, func() bool {
		w.Reconcile(call)
		return w.Get(call).Status.Phase.Terminal()
	})
	if s := w.Get(call).Status; s.Reason != v1alpha1.ReasonPodLost || *s.RetrySafe {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
}

func TestASuspendedCallCanBeCancelledAndItsJobDeleted(t *testing.T) {
	w := fixture.NewWorld(t)
	w.WithQueue()
	w.Environment("env", inQueue)
	cancelled, robbed := w.Call("cancelled"), w.Call("robbed")
	w.Reconcile(cancelled)
	w.Reconcile(robbed)
	w.Cancel(cancelled)
	w.Reconcile(cancelled)
	if s := w.Get(cancelled).Status; s.Phase != v1alpha1.PhaseCancelled || !*s.RetrySafe {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
	fixture.Eventually(t, func() bool { return !w.Live(cancelled) })

	job := w.Job(robbed)
	if err := w.Client.Delete(context.Background(), job, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, func() bool {
		w.Reconcile(robbed)
		return w.Get(robbed).Status.Phase.Terminal()
	})
	if s := w.Get(robbed).Status; s.Reason != v1alpha1.ReasonPodLost || !*s.RetrySafe {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
}

// The Jobs of a pool wait in the queue too, for as long as it takes, and nobody tries others instead.
func TestASuspendedPoolWaits(t *testing.T) {
	w := fixture.NewWorld(t)
	w.WithQueue()
	env := w.Environment("env", inQueue, func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.WarmPool = &v1alpha1.WarmPool{Size: 1}
	})
	w.Fill(env)
	jobs := w.Waiting(env)
	if len(jobs) != 1 || jobs[0].Labels[jobspec.LabelQueue] != "agents" || !*jobs[0].Spec.Suspend {
		t.Fatalf("the pool has %+v", jobs)
	}
	w.Clock.At = w.Clock.At.Add(time.Hour)
	if wake := w.Fill(env).RequeueAfter; wake != 0 {
		t.Errorf("it looks again after %s", wake)
	}
	if again := w.Waiting(env); len(again) != 1 || again[0].Name != jobs[0].Name {
		t.Fatalf("an hour later the pool has %+v", again)
	}
	if problem := w.Problem(env); problem != "" {
		t.Errorf("it says %q", problem)
	}
	w.LetRun(jobs[0].Name, &w.Clock.At)
	job := w.JobNamed(jobs[0].Name)
	w.Runner(job, w.Pod(job))
	w.FillUntilOffered(env)

	// A pod that is about to be removed isn't given to a call.
	w.LetRun(job.Name, nil)
	call := w.Call("c")
	w.Accept(call)
	if s := w.Get(call).Status; s.Runner != nil || s.Timings.Path != v1alpha1.PathCold {
		t.Errorf("the status is %+v", s)
	}

	// Another queue, other pods.
	w.Edit(env, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Queues[0] = "others" })
	fixture.Eventually(t, func() bool {
		w.Fill(env)
		left := w.Waiting(env)
		return len(left) == 1 && left[0].Labels[jobspec.LabelQueue] == "others"
	})
}
