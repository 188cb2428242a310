package executionenvironment_test

import (
	"context"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/fixture"
)

// Whatever deletes what is owned by an environment that is gone can't take a call's pod: it isn't owned by that.
func TestWhatWaitsGoesWithItsEnvironmentAndWhatACallWasGivenStays(t *testing.T) {
	for name, meanwhile := range map[string]func(w *fixture.World, r *fixture.Runner, call *v1alpha1.ToolCall){
		"the operator lives": func(*fixture.World, *fixture.Runner, *v1alpha1.ToolCall) {},
		"the operator dies": func(w *fixture.World, r *fixture.Runner, call *v1alpha1.ToolCall) {
			w.Restart()
			r.Connect(w, string(call.UID))
		},
		"the operator dies, and the runner isn't back": func(w *fixture.World, _ *fixture.Runner, _ *v1alpha1.ToolCall) { w.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			env := w.Environment("env", fixture.Warm(3))
			runners := w.WarmUp(env)
			for _, job := range w.Waiting(env) {
				if len(job.OwnerReferences) != 0 {
					t.Fatalf("the Job of a waiting pod is owned by %+v", job.OwnerReferences)
				}
			}
			call := w.Call("c")
			w.Reconcile(call)
			taken := w.Get(call).Status.Job
			r := runners[taken]
			r.Receive()
			fixture.Eventually(t, func() bool {
				now := &v1alpha1.ToolCall{}
				return w.Client.Get(context.Background(), client.ObjectKeyFromObject(call), now) == nil && now.Status.Job == taken
			})

			w.DeleteEnvironment(env)
			meanwhile(w, r, call)
			if wake := w.Fill(env).RequeueAfter; wake <= 0 {
				t.Error("nobody looks again, though a Job is there")
			}
			if left := names(w.Waiting(env)); len(left) != 1 || !left[taken] {
				t.Fatalf("%v are there; want only the call's, %s", left, taken)
			}
			if w.Hub.Runner(string(w.JobNamed(taken).UID)) == nil {
				r.Connect(w, string(call.UID))
			}
			fixture.Eventually(t, func() bool { w.ChangeHands(call); return metav1.IsControlledBy(w.JobNamed(taken), call) })
			fixture.Eventually(t, func() bool { return w.Fill(env).RequeueAfter == 0 })
			r.Report(w, call.UID, fixture.Completed)
			w.Reconcile(call)
			if s := w.Get(call).Status; s.Phase != v1alpha1.PhaseSucceeded {
				t.Errorf("ended %+v", s)
			}
		})
	}
}

// A call that is deleted at once leaves its pod to the pool, which then belongs to nobody.
func TestThePodOfADeletedCallGoesWithItsEnvironment(t *testing.T) {
	w := fixture.NewWorld(t)
	env, _, call := w.GivenAPod()
	w.DeleteEnvironment(env)
	if err := w.Client.Delete(context.Background(), call); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, func() bool { w.Reconcile(call); w.Fill(env); return len(w.Waiting(env)) == 0 })
}

// A cache that hasn't an environment yet is no reason to take its pods away.
func TestWhatWaitsStaysUntilItsEnvironmentIsKnownToBeGone(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(2))
	w.Fill(env)
	w.Pools.Objects.Reader = &noEnvironments{Client: w.Client}
	if wake := w.Fill(env).RequeueAfter; wake <= 0 || len(w.Waiting(env)) != 2 {
		t.Errorf("%d pods wait; it looks again after %s", len(w.Waiting(env)), wake)
	}
}

// noEnvironments shows none.
type noEnvironments struct{ client.Client }

func (n *noEnvironments) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, is := o.(*v1alpha1.ExecutionEnvironment); is {
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("executionenvironments").GroupResource(), key.Name)
	}
	return n.Client.Get(ctx, key, o, opts...)
}

func TestAnEnvironmentThatIsMadeAgainReplacesThePodsOfTheOldOne(t *testing.T) {
	w := fixture.NewWorld(t)
	old := w.Environment("env", fixture.Warm(2))
	w.Fill(old)
	w.DeleteEnvironment(old)
	now := w.Environment("env", fixture.Warm(2))
	fixture.Eventually(t, func() bool { w.Fill(now); return len(w.Waiting(old)) == 0 && len(w.Waiting(now)) == 2 })
}

// Anybody may write annotations and labels on Jobs of their own.
func TestWhatOnlyLooksLikeAWaitingPodIsLeftAlone(t *testing.T) {
	w := fixture.NewWorld(t)
	env := w.Environment("env", fixture.Warm(1))
	w.Fill(env)
	waits := w.Waiting(env)[0]
	for name, change := range map[string]func(*batchv1.Job){
		"a-copy":     func(*batchv1.Job) {},
		"without":    func(j *batchv1.Job) { delete(j.Annotations, jobspec.AnnotationPoolSeal) },
		"of-another": func(j *batchv1.Job) { j.Labels[jobspec.LabelPool] = "another" },
	} {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}, Spec: *waits.Spec.DeepCopy()}
		for k, v := range waits.Labels {
			job.Labels[k] = v
		}
		for k, v := range waits.Annotations {
			job.Annotations[k] = v
		}
		job.Spec.Selector, job.Spec.Template.Labels = nil, nil
		change(job)
		w.Create(job)
	}
	w.DeleteEnvironment(env)
	fixture.Eventually(t, func() bool { w.Fill(env); return !w.HasNamedJob(waits.Name) })
	for _, name := range []string{"a-copy", "without", "of-another"} {
		if !w.HasNamedJob(name) {
			t.Errorf("Job %s was deleted", name)
		}
	}
}
