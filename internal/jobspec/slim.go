package jobspec

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// annotationPodDigest holds, in memory only, the digest of the pod template that Slim leaves out.
const annotationPodDigest = "toolcall.dev/pod-digest"

// Slim reduces a Job that was read from the API server to what the operator reads of it, so that a cache of them stays
// small. Instead of the pod template it keeps the template's digest. A Job that has been through it stays as it is: a
// cache that fills from a watch has each object go through twice. One that the API server took always has a container.
func Slim(job *batchv1.Job) {
	if len(job.Spec.Template.Spec.Containers) == 0 {
		return
	}
	digest := podDigest(&job.Spec.Template.Spec)
	job.Spec = batchv1.JobSpec{
		Suspend: job.Spec.Suspend, ActiveDeadlineSeconds: job.Spec.ActiveDeadlineSeconds,
		// A patch takes away only what is seen to be there: see AdoptForSession.
		TTLSecondsAfterFinished: job.Spec.TTLSecondsAfterFinished,
	}
	metav1.SetMetaDataAnnotation(&job.ObjectMeta, annotationPodDigest, digest)
}

// maxCachedDecision is how long a sealed decision may be that the cache keeps. It holds the literal values of an
// environment, of which there may be many.
const maxCachedDecision = 4 << 10

// IsDecisionOmitted says that the cache left out a Job's decision, or what its session begins with.
func IsDecisionOmitted(job *batchv1.Job) bool {
	for _, key := range []string{AnnotationDecision, AnnotationOrigin} {
		if sealed, ok := job.Annotations[key]; ok && sealed == "" {
			return true
		}
	}
	return false
}

// SlimCached does the same for the cache, and leaves large decisions out. Of a call's Job that has ended, the name, the
// owner and the conditions are left; such Jobs stay for minutes, and that is most of them.
func SlimCached(job *batchv1.Job) {
	Slim(job)
	for _, sealed := range []string{AnnotationDecision, AnnotationOrigin} {
		if len(job.Annotations[sealed]) > maxCachedDecision {
			job.Annotations[sealed] = ""
		}
	}
	if owner := metav1.GetControllerOf(job); HasEnded(job) && owner != nil && owner.Kind == "ToolCall" {
		job.Labels, job.Annotations = nil, nil
	}
}

// IsSuspended says that a Job isn't let run, by a queue mostly: it has no pod, or is losing the one that it had. One
// that is let run again counts as suspended until the Job controller has taken note.
func IsSuspended(job *batchv1.Job) bool {
	if ptr.Deref(job.Spec.Suspend, false) {
		return true
	}
	return job.Status.StartTime == nil && hasCondition(job, batchv1.JobSuspended)
}

// WasSuspended says that somebody suspends a Job, or did and let it run again.
func WasSuspended(job *batchv1.Job) bool {
	return IsSuspended(job) || slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobSuspended
	})
}

// HasEnded says that a Job's pod has ended, and that it will have no other.
func HasEnded(job *batchv1.Job) bool {
	return hasCondition(job, batchv1.JobComplete) || hasCondition(job, batchv1.JobFailed)
}

func hasCondition(job *batchv1.Job, kind batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// EndsBy is when the Job controller ends a Job's pod at the latest; zero where the Job has no deadline.
func EndsBy(job *batchv1.Job) time.Time {
	if job.Spec.ActiveDeadlineSeconds == nil {
		return time.Time{}
	}
	return StartsFrom(job).Add(time.Duration(*job.Spec.ActiveDeadlineSeconds) * time.Second)
}

// EndsBefore says that a Job has a deadline before t.
func EndsBefore(job *batchv1.Job, t time.Time) bool {
	return job.Spec.ActiveDeadlineSeconds != nil && EndsBy(job).Before(t)
}

// StartsFrom is when a Job could start: the Job controller sets the time when the Job is let run, and clears it when
// the Job is suspended.
func StartsFrom(job *batchv1.Job) time.Time {
	if job.Status.StartTime != nil {
		return job.Status.StartTime.Time
	}
	return job.CreationTimestamp.Time
}
