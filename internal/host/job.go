package host

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// Deletable is a Job, if it is there to be deleted.
func Deletable(job *batchv1.Job) []*batchv1.Job {
	if job == nil || job.DeletionTimestamp != nil {
		return nil
	}
	return []*batchv1.Job{job}
}

// DeleteJobs deletes Jobs with their pods, unless others have the names by now. The kubelet's SIGTERM has the runners stop whatever still
// runs.
func DeleteJobs(ctx context.Context, c client.Client, jobs ...*batchv1.Job) error {
	for _, job := range jobs {
		err := c.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &job.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Job %s: %w", job.Name, err)
		}
	}
	return nil
}
