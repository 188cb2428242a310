package host

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
)

// IsPodOf says that a Job made a pod.
func IsPodOf(pod *corev1.Pod, job *batchv1.Job) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.Kind == "Job" && owner.UID == job.UID && owner.Controller != nil && *owner.Controller
	})
}

// WaitingJob is the Job of a waiting runner; nil when that is on its way out.
func WaitingJob(ctx context.Context, objects apicache.Reader, namespace string, runner *dispatch.Runner) (*batchv1.Job, error) {
	hello := runner.Hello()
	job, err := objects.Job(ctx, types.NamespacedName{Namespace: namespace, Name: hello.Job})
	if err != nil || job == nil {
		return nil, err
	}
	if string(job.UID) != hello.JobUID || job.DeletionTimestamp != nil || jobspec.IsSuspended(job) || jobspec.HasEnded(job) {
		return nil, nil
	}
	return job, nil
}
