package controllers_test

import (
	"context"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

// deleteEnvironment deletes it, and waits until the cache knows.
func (w *world) deleteEnvironment(env *v1alpha1.ExecutionEnvironment) {
	w.t.Helper()
	if err := w.client.Delete(context.Background(), env); err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, func() bool {
		err := w.client.Get(context.Background(), client.ObjectKeyFromObject(env), &v1alpha1.ExecutionEnvironment{})
		return client.IgnoreNotFound(err) == nil && err != nil
	})
}

// Whatever deletes what is owned by an environment that is gone can't take a call's pod: it isn't owned by that.
func TestWhatWaitsGoesWithItsEnvironmentAndWhatACallWasGivenStays(t *testing.T) {
	for name, meanwhile := range map[string]func(w *world, r *runner, call *v1alpha1.ToolCall){
		"the operator lives": func(*world, *runner, *v1alpha1.ToolCall) {},
		"the operator dies": func(w *world, r *runner, call *v1alpha1.ToolCall) {
			w.restart()
			r.connect(w, string(call.UID))
		},
		"the operator dies, and the runner isn't back": func(w *world, _ *runner, _ *v1alpha1.ToolCall) { w.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			env := w.environment("env", warm(3))
			runners := w.warmUp(env)
			for _, job := range w.waiting(env) {
				if len(job.OwnerReferences) != 0 {
					t.Fatalf("the Job of a waiting pod is owned by %+v", job.OwnerReferences)
				}
			}
			call := w.call("c")
			w.reconcile(call)
			taken := w.get(call).Status.Job
			r := runners[taken]
			r.receive()
			eventually(t, func() bool {
				now := &v1alpha1.ToolCall{}
				return w.client.Get(context.Background(), client.ObjectKeyFromObject(call), now) == nil && now.Status.Job == taken
			})

			w.deleteEnvironment(env)
			meanwhile(w, r, call)
			if wake := w.fill(env).RequeueAfter; wake <= 0 {
				t.Error("nobody looks again, though a Job is there")
			}
			if left := names(w.waiting(env)); len(left) != 1 || !left[taken] {
				t.Fatalf("%v are there; want only the call's, %s", left, taken)
			}
			if w.hub.Session(string(w.jobNamed(taken).UID)) == nil {
				r.connect(w, string(call.UID))
			}
			eventually(t, func() bool { w.changeHands(call); return metav1.IsControlledBy(w.jobNamed(taken), call) })
			eventually(t, func() bool { return w.fill(env).RequeueAfter == 0 })
			r.report(w, call.UID, completed)
			w.reconcile(call)
			if s := w.get(call).Status; s.Phase != v1alpha1.PhaseSucceeded {
				t.Errorf("ended %+v", s)
			}
		})
	}
}

// A call that is deleted at once leaves its pod to the pool, which then belongs to nobody.
func TestThePodOfADeletedCallGoesWithItsEnvironment(t *testing.T) {
	w := newWorld(t)
	env, _, call := w.givenAPod()
	w.deleteEnvironment(env)
	if err := w.client.Delete(context.Background(), call); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { w.reconcile(call); w.fill(env); return len(w.waiting(env)) == 0 })
}

// A cache that hasn't an environment yet is no reason to take its pods away.
func TestWhatWaitsStaysUntilItsEnvironmentIsKnownToBeGone(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(2))
	w.fill(env)
	w.pools.Objects.Reader = &noEnvironments{Client: w.client}
	if wake := w.fill(env).RequeueAfter; wake <= 0 || len(w.waiting(env)) != 2 {
		t.Errorf("%d pods wait; it looks again after %s", len(w.waiting(env)), wake)
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
	w := newWorld(t)
	old := w.environment("env", warm(2))
	w.fill(old)
	w.deleteEnvironment(old)
	now := w.environment("env", warm(2))
	eventually(t, func() bool { w.fill(now); return len(w.waiting(old)) == 0 && len(w.waiting(now)) == 2 })
}

// Anybody may write annotations and labels on Jobs of their own.
func TestWhatOnlyLooksLikeAWaitingPodIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", warm(1))
	w.fill(env)
	waits := w.waiting(env)[0]
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
		w.create(job)
	}
	w.deleteEnvironment(env)
	eventually(t, func() bool { w.fill(env); return !w.hasNamedJob(waits.Name) })
	for _, name := range []string{"a-copy", "without", "of-another"} {
		if !w.hasNamedJob(name) {
			t.Errorf("Job %s was deleted", name)
		}
	}
}
