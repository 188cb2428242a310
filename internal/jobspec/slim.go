package jobspec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
// small. Instead of the pod template it keeps the template's digest.
func Slim(job *batchv1.Job) {
	digest := podDigest(&job.Spec.Template.Spec)
	job.Spec = batchv1.JobSpec{Suspend: job.Spec.Suspend, ActiveDeadlineSeconds: job.Spec.ActiveDeadlineSeconds}
	if job.Annotations == nil {
		job.Annotations = map[string]string{}
	}
	job.Annotations[annotationPodDigest] = digest
}

// SlimCached does the same for the cache. Of a call's Job that has ended, the name, the owner and the conditions are
// left; such Jobs stay for minutes, and that is most of them.
func SlimCached(job *batchv1.Job) {
	Slim(job)
	if owner := metav1.GetControllerOf(job); HasEnded(job) && owner != nil && owner.Kind == "ToolCall" {
		job.Labels, job.Annotations = nil, nil
	}
}

// podDigest covers what decides which programs a pod starts and with which identity: images, commands, variables,
// account and namespaces of the host. It leaves out what the API server fills in and what queues may change.
func podDigest(pod *corev1.PodSpec) string {
	type part struct {
		Name, Image   string
		Command, Args []string
		Env           []corev1.EnvVar
		EnvFrom       []corev1.EnvFromSource
	}
	parts := func(containers []corev1.Container) []part {
		var list []part
		for i := range containers {
			c := &containers[i]
			list = append(list, part{c.Name, c.Image, c.Command, c.Args, withVersions(c.Env), c.EnvFrom})
		}
		return list
	}
	raw, err := json.Marshal([]any{
		parts(pod.InitContainers), parts(pod.Containers), pod.ServiceAccountName, pod.HostNetwork, pod.HostPID, pod.HostIPC,
	})
	if err != nil {
		return "" // Not reached: these types always encode.
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// withVersions fills in what the API server does.
func withVersions(env []corev1.EnvVar) []corev1.EnvVar {
	list := slices.Clone(env)
	for i, v := range list {
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil && v.ValueFrom.FieldRef.APIVersion == "" {
			list[i].ValueFrom = v.ValueFrom.DeepCopy()
			list[i].ValueFrom.FieldRef.APIVersion = "v1"
		}
	}
	return list
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

// StartsFrom is when a Job could start: the Job controller sets the time when the Job is let run, and clears it when
// the Job is suspended.
func StartsFrom(job *batchv1.Job) time.Time {
	if job.Status.StartTime != nil {
		return job.Status.StartTime.Time
	}
	return job.CreationTimestamp.Time
}
