package controllers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

// queue suspends Jobs with the label when they are created, as Kueue's webhook does.
type queue struct{ client.Client }

func (q queue) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if job, ok := o.(*batchv1.Job); ok && job.Labels[jobspec.LabelQueue] != "" {
		job.Spec.Suspend = ptr.To(true)
	}
	return q.Client.Create(ctx, o, opts...)
}

// withQueue has the operator's Jobs go through a queue.
func (w *world) withQueue() {
	w.use = queue{w.client}
	w.rebuild()
}

func inQueue(env *v1alpha1.ExecutionEnvironment) {
	asDefault(env)
	env.Spec.Queues = []string{"agents"}
	env.Labels = map[string]string{jobspec.LabelQueuePriority: "low"}
	env.Spec.StartTimeoutSeconds = ptr.To(int32(30))
}

// letRun does what a queue and then the Job controller do with a Job: it may run from at on, or not any more.
func (w *world) letRun(name string, at *time.Time) {
	w.t.Helper()
	ctx := context.Background()
	job := w.jobNamed(name)
	must := func(err error) {
		if err != nil {
			w.t.Fatal(err)
		}
	}
	must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		job = w.jobNamed(name)
		job.Spec.Suspend = ptr.To(at == nil)
		if at != nil {
			place(&job.Spec.Template)
		}
		return w.client.Update(ctx, job)
	}))
	state := batchv1.JobCondition{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue, Reason: "JobSuspended"}
	job.Status.StartTime = nil
	if at != nil {
		state.Status, state.Reason = corev1.ConditionFalse, "JobResumed"
		job.Status.StartTime = ptr.To(metav1.NewTime(*at))
	}
	job.Status.Conditions = []batchv1.JobCondition{state}
	must(w.client.Status().Update(ctx, job))
	eventually(w.t, func() bool {
		seen := &batchv1.Job{}
		must(w.client.Get(ctx, client.ObjectKeyFromObject(job), seen))
		return seen.ResourceVersion == job.ResourceVersion
	})
}

// place changes a Job's pod template as Kueue does with the Job that it lets run: where its quota is, and whose it is.
func place(pod *corev1.PodTemplateSpec) {
	pod.Labels["kueue.x-k8s.io/podset"] = "main"
	pod.Labels["kueue.x-k8s.io/local-queue-name"] = "agents"
	pod.Annotations["kueue.x-k8s.io/workload"] = "job-x"
	pod.Spec.NodeSelector = map[string]string{"capacity": "spot"}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
}

func whyNotStarted(call *v1alpha1.ToolCall) string {
	if c := meta.FindStatusCondition(call.Status.Conditions, v1alpha1.ConditionStarted); c != nil && c.Status == metav1.ConditionFalse {
		return c.Reason
	}
	return ""
}

func TestASuspendedCallWaitsWithoutATimeLimit(t *testing.T) {
	w := newWorld(t)
	w.withQueue()
	w.environment("env", inQueue)
	call := w.call("c")
	w.reconcile(call)
	now := w.get(call)
	if now.Status.Phase != v1alpha1.PhasePending || whyNotStarted(now) != v1alpha1.ReasonSuspended || condition(now, v1alpha1.ConditionAccepted) != metav1.ConditionTrue {
		t.Fatalf("after one pass the status is %+v", now.Status)
	}
	started := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionStarted)
	if !strings.Contains(started.Message, `queue "agents"`) {
		t.Errorf("it says %q", started.Message)
	}
	w.clock.now = w.clock.now.Add(24 * time.Hour)
	version := w.get(call).ResourceVersion
	if wake := w.reconcile(call).RequeueAfter; wake != 0 {
		t.Errorf("a call that nothing is known of to come looks again after %s", wake)
	}
	if again := w.get(call); again.ResourceVersion != version {
		t.Errorf("it was written again: %+v", again.Status)
	}

	name := w.job(call).Name
	w.letRun(name, &w.clock.now)
	w.reconcile(call)
	if now := w.get(call); whyNotStarted(now) != v1alpha1.ReasonNotStarted || now.Status.Phase != v1alpha1.PhasePending {
		t.Fatalf("let run, the status is %+v", now.Status)
	}
	w.clock.now = w.clock.now.Add(29 * time.Second)
	w.reconcile(call)
	if phase := w.get(call).Status.Phase; phase.Terminal() {
		t.Errorf("it was %s before its time was up", phase)
	}
	w.clock.now = w.clock.now.Add(2 * time.Second)
	w.reconcile(call)
	if s := w.get(call).Status; s.Reason != v1alpha1.ReasonStartTimeout || !*s.RetrySafe {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
}

func TestACallThatAQueueLetsRunRuns(t *testing.T) {
	w := newWorld(t)
	w.withQueue()
	w.environment("env", inQueue)
	call := w.call("c")
	w.reconcile(call)
	w.clock.now = w.clock.now.Add(time.Hour)
	w.letRun(w.job(call).Name, &w.clock.now)
	w.finishOne(call)
}

// A queue takes back what it gave, for a more important Job: nothing had started, and the call waits again.
func TestACallThatIsSuspendedAgainBeforeItStartedWaitsAgain(t *testing.T) {
	w := newWorld(t)
	w.withQueue()
	w.environment("env", inQueue)
	call := w.call("c")
	w.reconcile(call)
	name := w.job(call).Name
	w.letRun(name, &w.clock.now)
	first := w.pod(w.job(call))
	w.runner(w.job(call), first)
	w.letRun(name, nil)
	w.podStatus(first, func(s *corev1.PodStatus) { s.Phase = corev1.PodFailed })
	w.reconcile(call)
	if now := w.get(call); whyNotStarted(now) != v1alpha1.ReasonSuspended || now.Status.Runner != nil {
		t.Fatalf("suspended again, the status is %+v", now.Status)
	}
	// The pod of the first time lingers: it says nothing of the second.
	first.Finalizers = []string{"toolcall.dev/test"}
	if err := w.client.Update(context.Background(), first); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(context.Background(), first); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.client.Get(context.Background(), client.ObjectKeyFromObject(first), first)
		first.Finalizers = nil
		_ = w.client.Update(context.Background(), first)
	})
	w.clock.now = w.clock.now.Add(time.Hour)
	w.letRun(name, &w.clock.now)
	eventually(t, func() bool {
		err := w.client.Get(context.Background(), client.ObjectKeyFromObject(first), first)
		return err == nil && first.DeletionTimestamp != nil
	})
	w.reconcile(call)
	if now := w.get(call); now.Status.Phase != v1alpha1.PhasePending || whyNotStarted(now) != v1alpha1.ReasonNotStarted {
		t.Errorf("let run again, the status is %+v", now.Status)
	}
}

// startQueued lets a queued call's Job run, has its runner come, and the call given to it.
func (w *world) startQueued(call *v1alpha1.ToolCall) (job string, pod *corev1.Pod, r *runner) {
	w.t.Helper()
	w.reconcile(call)
	job = w.job(call).Name
	w.letRun(job, &w.clock.now)
	r = w.start(call)
	return job, w.podNamed(w.get(call).Status.Pod), r
}

// One whose command may have started isn't run again, whatever a queue does with its Job.
func TestARunningCallThatIsSuspendedIsLostAndNotRunAgain(t *testing.T) {
	w := newWorld(t)
	w.withQueue()
	w.environment("env", inQueue)
	call := w.call("c")
	name, pod, r := w.startQueued(call)
	w.letRun(name, nil)
	r.conn.Close()
	if err := w.client.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		w.reconcile(call)
		return w.get(call).Status.Phase.Terminal()
	})
	if s := w.get(call).Status; s.Reason != v1alpha1.ReasonPodLost || *s.RetrySafe {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
}

// The runner of a pod that is taken away reports what came of its command. The Job has neither failed nor completed
// then, and its queue would let it run again: with a pod that no call is for, and that holds its quota.
func TestAQueueDoesNotRunTheJobOfAnEndedCallAgain(t *testing.T) {
	for title, again := range map[string]bool{"while it is suspended": false, "once it is let run again": true} {
		t.Run(title, func(t *testing.T) {
			w := newWorld(t)
			w.withQueue()
			w.environment("env", inQueue)
			call := w.call("c")
			name, pod, r := w.startQueued(call)
			r.report(w, call.UID, completed)
			w.reconcile(call)
			w.reconcile(call)
			if job := w.jobNamed(name); job.DeletionTimestamp != nil {
				t.Fatal("the Job is deleted though it runs as it was let")
			}
			w.letRun(name, nil)
			if again {
				if err := w.client.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); err != nil {
					t.Fatal(err)
				}
				w.letRun(name, &w.clock.now)
				w.pod(w.jobNamed(name))
			}
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: call.Namespace, Name: name}}
			eventually(t, func() bool {
				w.reconcile(call)
				err := w.client.Get(context.Background(), client.ObjectKeyFromObject(job), job)
				return apierrors.IsNotFound(err) || job.DeletionTimestamp != nil
			})
			if s := w.get(call).Status; s.Phase != v1alpha1.PhaseSucceeded {
				t.Errorf("the call is %s: %s", s.Reason, s.Message)
			}
		})
	}
}

func TestASuspendedCallCanBeCancelledAndItsJobDeleted(t *testing.T) {
	w := newWorld(t)
	w.withQueue()
	w.environment("env", inQueue)
	cancelled, robbed := w.call("cancelled"), w.call("robbed")
	w.reconcile(cancelled)
	w.reconcile(robbed)
	w.cancel(cancelled)
	w.reconcile(cancelled)
	if s := w.get(cancelled).Status; s.Phase != v1alpha1.PhaseCancelled || !*s.RetrySafe {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
	eventually(t, func() bool { return !w.live(cancelled) })

	job := w.job(robbed)
	if err := w.client.Delete(context.Background(), job, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		w.reconcile(robbed)
		return w.get(robbed).Status.Phase.Terminal()
	})
	if s := w.get(robbed).Status; s.Reason != v1alpha1.ReasonPodLost || !*s.RetrySafe {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
}

// live says whether a call has a Job that nobody is deleting.
func (w *world) live(call *v1alpha1.ToolCall) bool {
	return w.hasJob(call) && w.job(call).DeletionTimestamp == nil
}

func (w *world) cancel(call *v1alpha1.ToolCall) {
	w.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"cancel":true}}`))
	if err := w.client.Patch(context.Background(), call.DeepCopy(), patch); err != nil {
		w.t.Fatal(err)
	}
}

// A pod that waits was admitted by another queue than the one that the call chooses.
func TestACallThatChoosesAQueueTakesNoWaitingPod(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", asDefault, func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Queues = []string{"batch", "night"}
		e.Spec.WarmPool = &v1alpha1.WarmPool{Size: 1}
	})
	w.fill(env)
	job := w.waiting(env)[0]
	w.runner(&job, w.pod(&job))
	w.fillUntilOffered(env)

	wants := func(queue string) func(*v1alpha1.ToolCall) {
		return func(c *v1alpha1.ToolCall) { c.Labels = map[string]string{jobspec.LabelQueue: queue} }
	}
	chosen := w.call("chosen", wants("night"))
	w.accept(chosen)
	if s := w.get(chosen).Status; s.Timings.Path != v1alpha1.PathCold || w.job(chosen).Labels[jobspec.LabelQueue] != "night" {
		t.Errorf("it is in queue %q, and its status is %+v", w.job(chosen).Labels[jobspec.LabelQueue], s)
	}

	// What isn't offered means nothing, which the call says.
	other := w.call("other", wants("vip"))
	w.accept(other)
	s := w.get(other).Status
	accepted := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAccepted)
	if s.Timings.Path != v1alpha1.PathWarm || !strings.Contains(accepted.Message, `"vip"`) {
		t.Errorf("its status is %+v", s)
	}
}

func TestAQueueThatIsNotOfferedMeansNothing(t *testing.T) {
	w := newWorld(t)
	w.environment("queued", inQueue)
	w.environment("free")
	label := func(env string) func(*v1alpha1.ToolCall) {
		return func(c *v1alpha1.ToolCall) {
			c.Labels = map[string]string{jobspec.LabelQueue: "other", jobspec.LabelQueuePriority: "high"}
			c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: env}
		}
	}
	for env, want := range map[string][2]string{"queued": {"agents", "low"}, "free": {"", ""}} {
		call := w.call("in-"+env, label(env))
		w.reconcile(call)
		job := w.job(call)
		if got := [2]string{job.Labels[jobspec.LabelQueue], job.Labels[jobspec.LabelQueuePriority]}; got != want {
			t.Errorf("in environment %s the Job's queue and priority are %q", env, got)
		}
		if _, has := job.Spec.Template.Labels[jobspec.LabelQueue]; has {
			t.Errorf("in environment %s the pod is queued besides", env)
		}
	}
}

// The Jobs of a pool wait in the queue too, for as long as it takes, and nobody tries others instead.
func TestASuspendedPoolWaits(t *testing.T) {
	w := newWorld(t)
	w.withQueue()
	env := w.environment("env", inQueue, func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.WarmPool = &v1alpha1.WarmPool{Size: 1}
	})
	w.fill(env)
	jobs := w.waiting(env)
	if len(jobs) != 1 || jobs[0].Labels[jobspec.LabelQueue] != "agents" || !*jobs[0].Spec.Suspend {
		t.Fatalf("the pool has %+v", jobs)
	}
	w.clock.now = w.clock.now.Add(time.Hour)
	if wake := w.fill(env).RequeueAfter; wake != 0 {
		t.Errorf("it looks again after %s", wake)
	}
	if again := w.waiting(env); len(again) != 1 || again[0].Name != jobs[0].Name {
		t.Fatalf("an hour later the pool has %+v", again)
	}
	if problem := w.problem(env); problem != "" {
		t.Errorf("it says %q", problem)
	}
	w.letRun(jobs[0].Name, &w.clock.now)
	job := w.jobNamed(jobs[0].Name)
	w.runner(job, w.pod(job))
	w.fillUntilOffered(env)

	// A pod that is about to be removed isn't given to a call.
	w.letRun(job.Name, nil)
	call := w.call("c")
	w.accept(call)
	if s := w.get(call).Status; s.Runner != nil || s.Timings.Path != v1alpha1.PathCold {
		t.Errorf("the status is %+v", s)
	}

	// Another queue, other pods.
	w.edit(env, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Queues[0] = "others" })
	eventually(t, func() bool {
		w.fill(env)
		left := w.waiting(env)
		return len(left) == 1 && left[0].Labels[jobspec.LabelQueue] == "others"
	})
}
