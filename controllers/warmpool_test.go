package controllers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

func warm(size int32) func(*v1alpha1.ExecutionEnvironment) {
	return func(e *v1alpha1.ExecutionEnvironment) {
		asDefault(e)
		e.Spec.WarmPool = &v1alpha1.WarmPool{Size: size}
	}
}

// fill runs one pass over the pool.
func (w *world) fill(env *v1alpha1.ExecutionEnvironment) ctrl.Result {
	w.t.Helper()
	result, err := w.pools.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(env)})
	if err != nil {
		w.t.Fatalf("reconcile the pool: %v", err)
	}
	return result
}

// waiting are the Jobs of the environment's pool.
func (w *world) waiting(env *v1alpha1.ExecutionEnvironment) []batchv1.Job {
	w.t.Helper()
	jobs := &batchv1.JobList{}
	if err := shared.GetAPIReader().List(context.Background(), jobs, client.InNamespace(w.namespace)); err != nil {
		w.t.Fatal(err)
	}
	var own []batchv1.Job
	for _, job := range jobs.Items {
		if job.Labels[jobspec.LabelPool] == string(env.UID) && metav1.GetControllerOf(&job) == nil && job.DeletionTimestamp == nil {
			own = append(own, job)
		}
	}
	return own
}

// warmUp starts a pod and a runner for every Job of the pool, and offers them.
func (w *world) warmUp(env *v1alpha1.ExecutionEnvironment) map[string]*runner {
	w.t.Helper()
	w.fill(env)
	runners := map[string]*runner{}
	for _, job := range w.waiting(env) {
		runners[job.Name] = w.runner(&job, w.pod(&job))
	}
	w.fillUntilOffered(env)
	return runners
}

// fillUntilOffered waits until the cache has the pods.
func (w *world) fillUntilOffered(env *v1alpha1.ExecutionEnvironment) {
	w.t.Helper()
	eventually(w.t, func() bool {
		w.fill(env)
		return w.offered(env) == len(w.waiting(env))
	})
}

func (w *world) jobNamed(name string) *batchv1.Job {
	w.t.Helper()
	job := &batchv1.Job{}
	if err := shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: w.namespace, Name: name}, job); err != nil {
		w.t.Fatal(err)
	}
	return job
}

// change changes an environment as it is now.
func (w *world) change(env *v1alpha1.ExecutionEnvironment, change func()) {
	w.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(env), env); err != nil {
			return err
		}
		change()
		return w.client.Update(context.Background(), env)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestTheRefillDoesNotOvershoot(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(3))
	for range 5 {
		w.fill(env)
	}
	if n := len(w.waiting(env)); n != 3 {
		t.Errorf("%d Jobs wait", n)
	}
}

func TestAChangeReplacesTheWaitingPodsOnly(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(2))
	w.warmUp(env)
	call := w.call("c")
	w.reconcile(call)
	taken := w.get(call).Status.Job
	w.changeHands(call)
	w.fill(env)
	before := names(w.waiting(env))
	w.change(env, func() { env.Spec.Env = []v1alpha1.EnvVar{{Name: "A", Value: "new"}} })
	w.fill(env)
	w.fill(env)
	after := names(w.waiting(env))
	if len(after) != 2 {
		t.Errorf("%d pods wait after the change", len(after))
	}
	for name := range after {
		if before[name] {
			t.Errorf("Job %s was kept", name)
		}
	}
	job := &batchv1.Job{}
	if err := shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: w.namespace, Name: taken}, job); err != nil || job.DeletionTimestamp != nil {
		t.Errorf("the pod of a running call was taken away: %v", err)
	}
}

func TestAPolicyChangeReplacesTheWaitingPods(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	w.fill(env)
	before := names(w.waiting(env))
	policy := &v1alpha1.ExecutionPolicy{}
	if err := w.client.Get(context.Background(), types.NamespacedName{Name: env.Spec.PolicyName()}, policy); err != nil {
		t.Fatal(err)
	}
	policy.Spec.Timeouts = &v1alpha1.TimeoutsPolicy{DefaultSeconds: ptr.To(int32(7))}
	if err := w.client.Update(context.Background(), policy); err != nil {
		t.Fatal(err)
	}
	w.fill(env)
	for name := range names(w.waiting(env)) {
		if before[name] {
			t.Errorf("Job %s was kept", name)
		}
	}
}

func TestScalingDownRemovesWaitingPodsOnly(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(2))
	w.warmUp(env)
	call := w.call("c")
	w.reconcile(call)
	w.changeHands(call)
	w.change(env, func() { env.Spec.WarmPool.Size = 0 })
	w.fill(env)
	if n := len(w.waiting(env)); n != 0 {
		t.Errorf("%d pods wait", n)
	}
	job := &batchv1.Job{}
	if err := shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: w.namespace, Name: w.get(call).Status.Job}, job); err != nil {
		t.Errorf("the running call's Job: %v", err)
	}
}

func TestPodsThatCannotStartAreTriedLessAndLessOften(t *testing.T) {
	for name, c := range map[string]struct {
		broken  func(*world, *batchv1.Job, *corev1.Pod)
		problem string
	}{
		"no image": {func(w *world, _ *batchv1.Job, pod *corev1.Pod) {
			w.podStatus(pod, func(s *corev1.PodStatus) {
				s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}}}
			})
		}, "no such image"},
		"no runner in it": {func(w *world, job *batchv1.Job, pod *corev1.Pod) {
			w.podStatus(pod, func(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded })
			w.completeJob(job)
		}, "ended before the command could start"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			env := w.environment("env", warm(1))
			created := 0
			for range 20 {
				w.fill(env)
				for _, job := range w.waiting(env) {
					created++
					c.broken(w, &job, w.pod(&job))
					eventually(t, func() bool { w.fill(env); return len(w.waiting(env)) == 0 })
				}
				w.clock.now = w.clock.now.Add(time.Second)
			}
			if created < 2 || created > 6 {
				t.Errorf("%d pods were tried in 20 s", created)
			}
			if problem := w.problem(env); !strings.Contains(problem, c.problem) {
				t.Errorf("the problem is %q", problem)
			}
		})
	}
}

// A node goes, and all that waited there with it: the pods did start, and others will elsewhere. Nothing is to be tried
// less often for that.
func TestPodsThatWereTakenAwayAreReplacedAtOnce(t *testing.T) {
	w := newWorld(t)
	const size = 4
	env := w.environment("env", warm(size))
	runners := w.warmUp(env)
	before := names(w.waiting(env))
	for name, r := range runners {
		w.podStatus(w.podNamed(name+"-pod"), func(s *corev1.PodStatus) {
			s.Phase = corev1.PodFailed
			s.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists"}}
		})
		r.conn.Close()
	}
	eventually(t, func() bool { return w.hub.Len() == 0 })
	eventually(t, func() bool {
		w.fill(env)
		kept := 0
		for name := range names(w.waiting(env)) {
			if before[name] {
				kept++
			}
		}
		return kept == 0
	})
	if n := len(w.waiting(env)); n != size {
		t.Errorf("%d pods wait", n)
	}
	if problem := w.problem(env); problem != "" {
		t.Errorf("the pool is said to have a problem: %s", problem)
	}
}

func TestADeadWaitingPodIsReplaced(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	r := only(w.warmUp(env))
	before := names(w.waiting(env))
	r.conn.Close()
	eventually(t, func() bool { return w.hub.Len() == 0 })
	w.fill(env)
	if n := len(w.waiting(env)); n != 1 {
		t.Fatalf("a pod whose runner is away for a moment was given up: %d wait", n)
	}
	w.clock.now = w.clock.now.Add(3 * time.Minute)
	w.fill(env)
	w.clock.now = w.clock.now.Add(time.Minute)
	w.fill(env)
	for name := range names(w.waiting(env)) {
		if before[name] {
			t.Error("the dead pod is still there")
		}
	}
	if len(w.waiting(env)) != 1 {
		t.Error("it was not replaced")
	}
}

func TestACallWithASkillsSecretGoesCold(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	w.warmUp(env)
	w.create(&v1alpha1.Skill{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: v1alpha1.SkillSpec{Env: []v1alpha1.EnvVar{{
		Name: "TOKEN", ValueFrom: &v1alpha1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "x"}, Key: "k"}},
	}}}})
	call := w.call("c", func(c *v1alpha1.ToolCall) { c.Spec.SkillRef = &v1alpha1.LocalReference{Name: "s"} })
	w.accept(call)
	if p := w.get(call).Status.Timings.Path; p != v1alpha1.PathCold {
		t.Errorf("the call went %s", p)
	}
}

func TestTheEnvironmentsOwnSecretsAreInTheWaitingPods(t *testing.T) {
	w := newWorld(t)
	ref := &v1alpha1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "x"}, Key: "k"}}
	env := w.environment("env", warm(1), func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Env = []v1alpha1.EnvVar{{Name: "TOKEN", ValueFrom: ref}}
	})
	r := only(w.warmUp(env))
	call := w.call("c", func(c *v1alpha1.ToolCall) { c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "env"} })
	w.reconcile(call)
	if p := w.get(call).Status.Timings.Path; p != v1alpha1.PathWarm {
		t.Fatalf("the call went %s", p)
	}
	name := r.receive().Assign.Environment.Layers[0].Vars[0].Ref
	job := &batchv1.Job{}
	if err := shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: w.namespace, Name: w.get(call).Status.Job}, job); err != nil {
		t.Fatal(err)
	}
	for _, v := range job.Spec.Template.Spec.Containers[0].Env {
		if v.Name == name && v.ValueFrom.SecretKeyRef.Name == "x" {
			return
		}
	}
	t.Errorf("the pod has no variable %s", name)
}

func only(runners map[string]*runner) *runner {
	for _, r := range runners {
		return r
	}
	return nil
}

func names(jobs []batchv1.Job) map[string]bool {
	set := map[string]bool{}
	for _, job := range jobs {
		set[job.Name] = true
	}
	return set
}

func TestWhatDoesNotChangeThePodsKeepsThem(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(2))
	w.warmUp(env)
	before := names(w.waiting(env))
	w.edit(env, func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.WarmPool.Size = 1
		e.Spec.MaxConcurrentCalls = ptr.To[int32](7)
		e.Spec.TTLSecondsAfterFinished = ptr.To[int32](5)
	})
	eventually(t, func() bool {
		w.fill(env)
		return len(w.waiting(env)) == 1
	})
	if kept := w.waiting(env)[0].Name; !before[kept] {
		t.Errorf("%v waited before, %s after", before, kept)
	}
}
