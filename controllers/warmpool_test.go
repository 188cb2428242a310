package controllers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// waiting are the Jobs that the pool owns.
func (w *world) waiting(env *v1alpha1.ExecutionEnvironment) []batchv1.Job {
	w.t.Helper()
	jobs := &batchv1.JobList{}
	if err := shared.GetAPIReader().List(context.Background(), jobs, client.InNamespace(w.namespace)); err != nil {
		w.t.Fatal(err)
	}
	var own []batchv1.Job
	for _, job := range jobs.Items {
		if metav1.IsControlledBy(&job, env) && job.DeletionTimestamp == nil {
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
		template, _ := w.pools.State.Look(env.UID)
		return w.hub.Waiting(template) == len(w.waiting(env))
	})
}

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
	if _, ok := jobspec.ReadRecord(job, call, w.identity); !ok {
		t.Error("the Job doesn't keep what was decided")
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

// changeHands lets a call that took a waiting pod run until that pod's Job is the call's own.
func (w *world) changeHands(call *v1alpha1.ToolCall) {
	w.t.Helper()
	w.clock.now = w.clock.now.Add(100 * time.Millisecond)
	w.reconcile(call)
}

func (w *world) jobNamed(name string) *batchv1.Job {
	w.t.Helper()
	job := &batchv1.Job{}
	if err := shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: w.namespace, Name: name}, job); err != nil {
		w.t.Fatal(err)
	}
	return job
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
	env := w.environment("env", warm(1))
	r := only(w.warmUp(env))
	call := w.call("c")
	w.reconcile(call)
	r.receive()
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

// What was decided is kept in the Job only, and a crash came before that: it is decided again, and the call keeps
// its pod also when it would not be let in any more.
func TestARunningCallKeepsItsPodWhateverIsDecidedLater(t *testing.T) {
	for name, change := range map[string]func(*world, *v1alpha1.ExecutionEnvironment){
		"nothing changed": func(*world, *v1alpha1.ExecutionEnvironment) {},
		"environment gone": func(w *world, env *v1alpha1.ExecutionEnvironment) {
			if err := w.client.Delete(context.Background(), env); err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			env := w.environment("env", warm(1))
			r := only(w.warmUp(env))
			call := w.call("c")
			w.reconcile(call)
			r.receive()
			before := w.get(call).Status
			w.restart()
			change(w, env)
			r.connect(w, string(call.UID))
			w.reconcile(call)
			w.changeHands(call)
			job := w.jobNamed(before.Job)
			if _, kept := jobspec.ReadRecord(job, call, w.identity); !metav1.IsControlledBy(job, call) || kept != (name == "nothing changed") {
				t.Errorf("the Job isn't the call's own, or keeps another decision: %+v", job.ObjectMeta)
			}
			if diff := cmp.Diff(before, w.get(call).Status); diff != "" {
				t.Errorf("the status changed: %s", diff)
			}
			r.report(w, call.UID, completed)
			w.reconcile(call)
			if s := w.get(call).Status; s.Phase != v1alpha1.PhaseSucceeded {
				t.Errorf("ended %+v", s)
			}
		})
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

func TestAnEmptyPoolDoesNotKeepACallWaiting(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	w.warmUp(env)
	first, second := w.call("first"), w.call("second")
	w.reconcile(first)
	w.reconcile(second)
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
	template, _ := w.pools.State.Look(env.UID)
	if n := w.hub.Waiting(template); n != 0 {
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

// The answer to the write that records the pod is lost, and its runner goes away for a moment: the call looks
// again and must not keep a second runner from others.
func TestARunnerThatWasTakenInVainIsLetGo(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	only(w.warmUp(env))
	call := w.call("c", func(c *v1alpha1.ToolCall) { c.Spec.Cancel = true })
	template, _ := w.pools.State.Look(env.UID)
	taken := w.hub.Take(template, call.Name, string(call.UID))
	if taken == nil {
		t.Fatal("no runner waits")
	}
	w.reconcile(call)
	w.reconcile(call)
	if w.hub.Taken(string(call.UID)) != nil {
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
	w.reconcile(b)
	sa, sb := w.get(a).Status, w.get(b).Status
	if sa.Job == sb.Job || sb.Timings.Path != v1alpha1.PathCold {
		t.Errorf("a runs in %s, b in %s (%s)", sa.Job, sb.Job, sb.Timings.Path)
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
	env.Spec.Env = []v1alpha1.EnvVar{{Name: "A", Value: "new"}}
	if err := w.client.Update(context.Background(), env); err != nil {
		t.Fatal(err)
	}
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
	if err := w.client.Get(context.Background(), types.NamespacedName{Name: env.Spec.PolicyName}, policy); err != nil {
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
	env.Spec.WarmPool.Size = 0
	if err := w.client.Update(context.Background(), env); err != nil {
		t.Fatal(err)
	}
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
	w := newWorld(t)
	env := w.environment("env", warm(1))
	created := 0
	for range 20 {
		w.fill(env)
		for _, job := range w.waiting(env) {
			created++
			pod := w.pod(&job)
			w.podStatus(pod, func(s *corev1.PodStatus) {
				s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}}}
			})
			eventually(t, func() bool { w.fill(env); return len(w.waiting(env)) == 0 })
		}
		w.clock.now = w.clock.now.Add(time.Second)
	}
	if created < 2 || created > 6 {
		t.Errorf("%d pods were tried in 20 s", created)
	}
	if _, problem := w.pools.State.Look(env.UID); !strings.Contains(problem, "no such image") {
		t.Errorf("the problem is %q", problem)
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
		pod := &corev1.Pod{}
		if err := w.client.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: name + "-pod"}, pod); err != nil {
			t.Fatal(err)
		}
		w.podStatus(pod, func(s *corev1.PodStatus) {
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
	if _, problem := w.pools.State.Look(env.UID); problem != "" {
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
	w.reconcile(call)
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
