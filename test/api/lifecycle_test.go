package api_test

import (
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/jobspec"
)

// awaitPod waits until the Job controller has made the Job's pod.
func (s *space) awaitPod(job *batchv1.Job) *corev1.Pod {
	s.t.Helper()
	pods := &corev1.PodList{}
	eventually(s.t, func() error {
		err := s.admin.List(s.t.Context(), pods, client.InNamespace(s.namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name})
		if err == nil && len(pods.Items) != 1 {
			err = fmt.Errorf("Job %s has %d pods", job.Name, len(pods.Items))
		}
		return err
	})
	return &pods.Items[0]
}

// awaitGone waits until an object isn't there any more.
func (s *space) awaitGone(object client.Object) {
	s.t.Helper()
	eventually(s.t, func() error {
		err := s.admin.Get(s.t.Context(), client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%T %s is still there, with finalizers %v", object, object.GetName(), object.GetFinalizers())
		}
		return err
	})
}

// succeed plays the kubelet.
func (s *space) succeed(pod *corev1.Pod) {
	s.t.Helper()
	base := pod.DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	if err := s.as("system:node:n", anybody).Status().Patch(s.t.Context(), pod, client.MergeFrom(base)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *space) patchAs(user string, object client.Object, patch string) {
	s.t.Helper()
	if err := s.as(user, anybody).Patch(s.t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		s.t.Fatalf("patch %s as %s: %v", object.GetName(), user, err)
	}
}

// Kubernetes' own controllers do with the operator's Jobs what they do with any.
func TestAJobRunsAndGoesUnderTheAdmissionPolicies(t *testing.T) {
	s := newSpace(t)
	withControllers(t)
	call := newCall(s.namespace, "c")
	s.create(call)
	job := s.jobOf(call)
	job.Spec.TTLSecondsAfterFinished = ptr.To(int32(0))
	if err := s.operator().Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	token := jobspec.Credential(job, "token")
	if err := s.operator().Create(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	pod := s.awaitPod(job)
	if pod.Labels[jobspec.LabelNetwork] == "" {
		t.Errorf("the pod's labels are %v", pod.Labels)
	}

	// A queue stops the Job and lets it run again, elsewhere.
	s.patchAs("system:serviceaccount:kueue-system:kueue-controller-manager", job, `{"spec":{"suspend":true}}`)
	s.awaitGone(pod.DeepCopy())
	s.patchAs("system:serviceaccount:kueue-system:kueue-controller-manager", job,
		`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"q"}},"spec":{"suspend":false,"template":{"spec":{"nodeSelector":{"pool":"a"}}}}}`)
	pod = s.awaitPod(job)

	// What has ended goes: the finalizer of the Job controller, the Job, and what belongs to it.
	s.succeed(pod)
	s.awaitGone(job.DeepCopy())
	s.awaitGone(pod)
	s.awaitGone(token)
}

func TestWhatACallOwnsGoesWithIt(t *testing.T) {
	s := newSpace(t)
	withControllers(t)
	for name, policy := range map[string]metav1.DeletionPropagation{
		"background": metav1.DeletePropagationBackground, "foreground": metav1.DeletePropagationForeground,
	} {
		t.Run(name, func(t *testing.T) {
			call, job := s.callAndJob(name)
			pod := s.awaitPod(job)
			if err := s.admin.Delete(t.Context(), call, client.PropagationPolicy(policy)); err != nil {
				t.Fatal(err)
			}
			s.awaitGone(job)
			s.awaitGone(pod)
			s.awaitGone(call)
		})
	}
}

// Without its owner a Job stays as it is: the garbage collector only takes the reference away.
func TestAnOrphanedJobStays(t *testing.T) {
	s := newSpace(t)
	withControllers(t)
	call, job := s.callAndJob("c")
	// A Job that the garbage collector hasn't seen yet would be deleted.
	s.awaitPod(job)
	if err := s.admin.Delete(t.Context(), call, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		if len(job.OwnerReferences) > 0 {
			return fmt.Errorf("it is owned by %v", job.OwnerReferences)
		}
		return nil
	})
}

func TestANamespaceWithCallsCanBeDeleted(t *testing.T) {
	s := newSpace(t)
	withControllers(t)
	_, job := s.callAndJob("c")
	if err := s.operator().Create(t.Context(), jobspec.Credential(job, "token")); err != nil {
		t.Fatal(err)
	}
	pod := s.awaitPod(job)
	s.create(newEnvironment(s.namespace, "env"))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	if err := s.admin.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	// The Job controller keeps a pod until its kubelet has ended it.
	s.succeed(pod)
	s.awaitGone(namespace)
}
