package executionenvironment_test

import (
	"context"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

func TestTheRefillDoesNotOvershoot(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(3))
	for range 5 {
		w.Fill(env)
	}
	if n := len(w.Waiting(env)); n != 3 {
		t.Errorf("%d Jobs wait", n)
	}
}

func TestAChangeReplacesTheWaitingPodsOnly(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(2))
	w.WarmUp(env)
	call := w.Call("c")
	w.Reconcile(call)
	taken := w.Get(call).Status.Job
	w.ChangeHands(call)
	w.Fill(env)
	before := names(w.Waiting(env))
	w.Change(env, func() { env.Spec.Env = []v1alpha1.EnvVar{{Name: "A", Value: "new"}} })
	w.Fill(env)
	w.Fill(env)
	after := names(w.Waiting(env))
	if len(after) != 2 {
		t.Errorf("%d pods wait after the change", len(after))
	}
	for name := range after {
		if before[name] {
			t.Errorf("Job %s was kept", name)
		}
	}
	job := &batchv1.Job{}
	if err := fixture.Shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: w.Namespace, Name: taken}, job); err != nil || job.DeletionTimestamp != nil {
		t.Errorf("the pod of a running call was taken away: %v", err)
	}
}

func TestAPolicyChangeReplacesTheWaitingPods(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	w.Fill(env)
	before := names(w.Waiting(env))
	policy := &v1alpha1.ExecutionPolicy{}
	if err := w.Client.Get(context.Background(), types.NamespacedName{Name: env.Spec.PolicyName()}, policy); err != nil {
		t.Fatal(err)
	}
	policy.Spec.Timeouts = &v1alpha1.TimeoutsPolicy{DefaultSeconds: ptr.To(int32(7))}
	if err := w.Client.Update(context.Background(), policy); err != nil {
		t.Fatal(err)
	}
	w.Fill(env)
	for name := range names(w.Waiting(env)) {
		if before[name] {
			t.Errorf("Job %s was kept", name)
		}
	}
}

func TestScalingDownRemovesWaitingPodsOnly(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(2))
	w.WarmUp(env)
	call := w.Call("c")
	w.Reconcile(call)
	w.ChangeHands(call)
	w.Change(env, func() { env.Spec.WarmPool.Size = 0 })
	w.Fill(env)
	if n := len(w.Waiting(env)); n != 0 {
		t.Errorf("%d pods wait", n)
	}
	job := &batchv1.Job{}
	if err := fixture.Shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: w.Namespace, Name: w.Get(call).Status.Job}, job); err != nil {
		t.Errorf("the running call's Job: %v", err)
	}
}

func TestPodsThatCannotStartAreTriedLessAndLessOften(t *testing.T) {
	for name, c := range map[string]struct {
		broken  func(*fixture.World, *batchv1.Job, *corev1.Pod)
		problem string
	}{
		"no image": {func(w *fixture.World, _ *batchv1.Job, pod *corev1.Pod) {
			w.PodStatus(pod, func(s *corev1.PodStatus) {
				s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}}}
			})
		}, "no such image"},
		"no runner in it": {func(w *fixture.World, job *batchv1.Job, pod *corev1.Pod) {
			w.PodStatus(pod, func(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded })
			w.CompleteJob(job)
		}, "ended before the command could start"},
	} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			env := w.Environment("env", fixture.Warm(1))
			created := 0
			for range 20 {
				w.Fill(env)
				for _, job := range w.Waiting(env) {
					created++
					c.broken(w, &job, w.Pod(&job))
					fixture.Eventually(t, func() bool { w.Fill(env); return len(w.Waiting(env)) == 0 })
				}
				w.Clock.At = w.Clock.At.Add(time.Second)
			}
			if created < 2 || created > 6 {
				t.Errorf("%d pods were tried in 20 s", created)
			}
			if problem := w.Problem(env); !strings.Contains(problem, c.problem) {
				t.Errorf("the problem is %q", problem)
			}
		})
	}
}

func TestAPoolIsFilledAgainOnceThereIsOneDefaultAgain(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	w.Fill(env)
	second := w.Environment("second", fixture.AsDefault)
	for range 5 {
		w.Fill(env)
	}
	if n := len(w.Waiting(env)); n != 0 || w.Problem(env) == "" {
		t.Errorf("beside another default %d pods wait, and the problem is %q", n, w.Problem(env))
	}
	w.Change(second, func() { delete(second.Annotations, v1alpha1.AnnotationDefaultEnvironment) })
	w.Fill(env)
	if n := len(w.Waiting(env)); n != 1 || w.Problem(env) != "" {
		t.Errorf("%d pods wait, and the problem is %q", n, w.Problem(env))
	}
}

func TestTheCredentialOfAWaitingPodIsMadeAgainWhenItIsMissing(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	w.Fill(env)
	job := w.Waiting(env)[0]
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: job.Name}}
	if err := w.Client.Delete(context.Background(), secret); err != nil {
		t.Fatal(err)
	}
	w.PodStatus(w.Pod(&job), func(s *corev1.PodStatus) {
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: `secret "` + job.Name + `" not found`},
		}}}
	})
	fixture.Eventually(t, func() bool {
		w.Fill(env)
		return fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(secret), secret) == nil
	})
	if now := w.Waiting(env); len(now) != 1 || now[0].UID != job.UID {
		t.Errorf("the pod was given up: %v", names(now))
	}
}

// A node goes, and all that waited there with it: the pods did start, and others will elsewhere. Nothing is to be tried
// less often for that.
func TestPodsThatWereTakenAwayAreReplacedAtOnce(t *testing.T) {
	w := fixture.NewWorld(t)
	const size = 4
	env := w.Environment("env", fixture.Warm(size))
	runners := w.WarmUp(env)
	before := names(w.Waiting(env))
	for name, r := range runners {
		w.PodStatus(w.PodNamed(name+"-pod"), func(s *corev1.PodStatus) {
			s.Phase = corev1.PodFailed
			s.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists"}}
		})
		r.Conn.Close()
	}
	fixture.Eventually(t, func() bool { return w.Hub.Len() == 0 })
	fixture.Eventually(t, func() bool {
		w.Fill(env)
		kept := 0
		for name := range names(w.Waiting(env)) {
			if before[name] {
				kept++
			}
		}
		return kept == 0
	})
	if n := len(w.Waiting(env)); n != size {
		t.Errorf("%d pods wait", n)
	}
	if problem := w.Problem(env); problem != "" {
		t.Errorf("the pool is said to have a problem: %s", problem)
	}
}

func TestADeadWaitingPodIsReplaced(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	r := fixture.Only(w.WarmUp(env))
	before := names(w.Waiting(env))
	r.Conn.Close()
	fixture.Eventually(t, func() bool { return w.Hub.Len() == 0 })
	w.Fill(env)
	if n := len(w.Waiting(env)); n != 1 {
		t.Fatalf("a pod whose runner is away for a moment was given up: %d wait", n)
	}
	w.Clock.At = w.Clock.At.Add(3 * time.Minute)
	w.Fill(env)
	w.Clock.At = w.Clock.At.Add(time.Minute)
	w.Fill(env)
	for name := range names(w.Waiting(env)) {
		if before[name] {
			t.Error("the dead pod is still there")
		}
	}
	if len(w.Waiting(env)) != 1 {
		t.Error("it was not replaced")
	}
}

// The registry may be there the next time, so that the pod is tried until it is late.
func TestAPodThatIsLateSaysWhatItWaitsFor(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	w.Fill(env)
	w.PodStatus(w.Pod(&w.Waiting(env)[0]), func(s *corev1.PodStatus) {
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "call", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "ErrImagePull", Message: "lookup registry.example: i/o timeout",
		}}}}
	})
	w.Fill(env)
	if n := len(w.Waiting(env)); n != 1 || w.Problem(env) != "" {
		t.Fatalf("%d pods wait, and the problem is %q", n, w.Problem(env))
	}
	w.Clock.At = w.Clock.At.Add(3 * time.Minute)
	fixture.Eventually(t, func() bool { w.Fill(env); return w.Problem(env) != "" })
	for _, part := range []string{"within 120 s (startTimeoutSeconds", "lookup registry.example: i/o timeout"} {
		if problem := w.Problem(env); !strings.Contains(problem, part) {
			t.Errorf("the problem lacks %q: %q", part, problem)
		}
	}
}

func TestACallWithASkillsSecretGoesCold(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	w.WarmUp(env)
	w.Create(&v1alpha1.Skill{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: v1alpha1.SkillSpec{Env: []v1alpha1.EnvVar{{
		Name: "TOKEN", ValueFrom: &v1alpha1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "x"}, Key: "k"}},
	}}}})
	call := w.Call("c", func(c *v1alpha1.ToolCall) { c.Spec.SkillRef = &v1alpha1.LocalReference{Name: "s"} })
	w.Accept(call)
	if p := w.Get(call).Status.Timings.Path; p != v1alpha1.PathCold {
		t.Errorf("the call went %s", p)
	}
}

func TestTheEnvironmentsOwnSecretsAreInTheWaitingPods(t *testing.T) {
	w := fixture.NewWorld(t)
	ref := &v1alpha1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "x"}, Key: "k"}}
	env := w.Environment("env", fixture.Warm(1), func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Env = []v1alpha1.EnvVar{{Name: "TOKEN", ValueFrom: ref}}
	})
	r := fixture.Only(w.WarmUp(env))
	call := w.Call("c", func(c *v1alpha1.ToolCall) { c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "env"} })
	w.Reconcile(call)
	if p := w.Get(call).Status.Timings.Path; p != v1alpha1.PathWarm {
		t.Fatalf("the call went %s", p)
	}
	name := r.Receive().Assign.Environment.Layers[0].Vars[0].Ref
	job := &batchv1.Job{}
	if err := fixture.Shared.GetAPIReader().Get(context.Background(), types.NamespacedName{Namespace: w.Namespace, Name: w.Get(call).Status.Job}, job); err != nil {
		t.Fatal(err)
	}
	for _, v := range job.Spec.Template.Spec.Containers[0].Env {
		if v.Name == name && v.ValueFrom.SecretKeyRef.Name == "x" {
			return
		}
	}
	t.Errorf("the pod has no variable %s", name)
}

func names(jobs []batchv1.Job) map[string]bool {
	set := map[string]bool{}
	for _, job := range jobs {
		set[job.Name] = true
	}
	return set
}

func TestWhatDoesNotChangeThePodsKeepsThem(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(2))
	w.WarmUp(env)
	before := names(w.Waiting(env))
	w.Edit(env, func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.WarmPool.Size = 1
		e.Spec.MaxConcurrentCalls = ptr.To[int32](7)
		e.Spec.TTLSecondsAfterFinished = ptr.To[int32](5)
	})
	fixture.Eventually(t, func() bool {
		w.Fill(env)
		return len(w.Waiting(env)) == 1
	})
	if kept := w.Waiting(env)[0].Name; !before[kept] {
		t.Errorf("%v waited before, %s after", before, kept)
	}
}
