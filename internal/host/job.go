package host

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
)

// PodWait is how long a Job may have no pod before its Events are asked why.
const PodWait = time.Second

// IsPodOf says that a Job made a pod.
func IsPodOf(pod *corev1.Pod, job *batchv1.Job) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.Kind == "Job" && owner.UID == job.UID && owner.Controller != nil && *owner.Controller
	})
}

// WaitingJob is the Job of a waiting runner; nil when that is on its way out.
func WaitingJob(ctx context.Context, objects apicache.Reader, namespace string, runner *dispatch.Session) (*batchv1.Job, error) {
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

// Covers says whether a pod that has these references has all that a call or a session needs.
func Covers(have, need []corev1.EnvVar) bool {
	return !slices.ContainsFunc(need, func(v corev1.EnvVar) bool {
		return !slices.ContainsFunc(have, func(other corev1.EnvVar) bool { return other.Name == v.Name })
	})
}

// Diagnose says what keeps a Job from starting its runner; nil when nothing is known to. The pod is nil when there is none.
func Diagnose(ctx context.Context, objects apicache.Reader, job *batchv1.Job, pod *corev1.Pod, now time.Time) (*Problem, error) {
	if pod != nil {
		return DiagnosePod(pod, job.Name), nil
	}
	if found := DiagnoseJob(job); found != nil {
		return found, nil
	}
	if now.Sub(jobspec.StartsFrom(job)) < PodWait {
		return nil, nil
	}
	events := &corev1.EventList{}
	err := objects.Live.List(ctx, events, client.InNamespace(job.Namespace), client.Limit(10), client.MatchingFieldsSelector{
		Selector: fields.Set{"involvedObject.uid": string(job.UID), "reason": "FailedCreate"}.AsSelector(),
	})
	if err != nil {
		return nil, fmt.Errorf("list the Job's Events: %w", err)
	}
	if len(events.Items) == 0 {
		return nil, nil
	}
	return &Problem{Final: true, Reason: v1alpha1.ReasonPodRejected, Message: "the pod was refused: " + events.Items[0].Message}, nil
}

// Capitalized begins a text with an upper-case letter.
func Capitalized(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if first == utf8.RuneError {
		return text
	}
	return string(unicode.ToUpper(first)) + text[size:]
}
