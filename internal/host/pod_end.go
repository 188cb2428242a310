package host

import (
	"cmp"
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/apicache"
)

// endReason is why a pod ended: the kubelet's reason for all of it, or else for the container with our runner.
func endReason(pod *corev1.Pod) string {
	if terminated := Terminated(pod); terminated != nil {
		return cmp.Or(pod.Status.Reason, terminated.Reason)
	}
	return pod.Status.Reason
}

// endMessage is what a pod that has run no command says of its end: the kubelet's message, or else what the runner left.
func endMessage(pod *corev1.Pod) string {
	if terminated := Terminated(pod); terminated != nil {
		return cmp.Or(pod.Status.Message, terminated.Message)
	}
	return pod.Status.Message
}

// HasPodEnded says that no process of a call runs in the pod any more. Other containers, which a mesh injected, don't
// count.
func HasPodEnded(pod *corev1.Pod) bool {
	return hasPhaseEnded(pod) || Terminated(pod) != nil
}

// hasPhaseEnded says that the pod as a whole has ended.
func hasPhaseEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// Terminated is how the container with our runner ended; nil when it hasn't, or nobody knows.
func Terminated(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	if pod == nil {
		return nil
	}
	if status := containerStatus(pod); status != nil {
		return status.State.Terminated
	}
	return nil
}

// killedExit is the exit code of a container whose first process was killed.
const killedExit = 137

// WasKilledForMemory says that the kernel killed our runner for memory, with every process in its container. The reason alone stays with
// a container in which the kernel has killed any process, whatever ends it later.
func WasKilledForMemory(pod *corev1.Pod) bool {
	terminated := Terminated(pod)
	return terminated != nil && terminated.Reason == "OOMKilled" && terminated.ExitCode == killedExit && disruption(pod) == nil
}

// WasTakenAway says that a pod went for a reason that isn't its own, with its node for instance: that says nothing about
// the next one, which is made at once. What the kubelet ends because its node has run short of something may be the
// pod's fault.
func WasTakenAway(pod *corev1.Pod) bool {
	if pod == nil || !hasPhaseEnded(pod) && pod.DeletionTimestamp == nil {
		return false
	}
	by := disruption(pod)
	return by != nil && by.Reason != corev1.PodReasonTerminationByKubelet
}

// IsFromBefore says that a pod is on its way out since its Job was suspended, and says nothing of the one to come.
func IsFromBefore(pod *corev1.Pod, job *batchv1.Job) bool {
	return pod.DeletionTimestamp != nil && job.Status.StartTime != nil && pod.CreationTimestamp.Before(job.Status.StartTime)
}

// disruption is who took a pod away that nobody had refused: its node is gone or was emptied, or the pod had to make
// room; nil when nobody did.
func disruption(pod *corev1.Pod) *corev1.PodCondition {
	for i, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// SaidEnd is what a pod's status says about why the kubelet ended it, or else who took it away; empty when it says nothing.
func SaidEnd(pod *corev1.Pod) string {
	if hasPhaseEnded(pod) && pod.Status.Reason != "" {
		return Sentence(pod.Status.Reason, pod.Status.Message, "")
	}
	if taken := disruption(pod); taken != nil {
		return Sentence(taken.Reason, taken.Message, "")
	}
	return ""
}

// WhyPodEnded is that, or else how the container with our runner ended.
func WhyPodEnded(pod *corev1.Pod) string {
	return cmp.Or(SaidEnd(pod), Sentence(endReason(pod), pod.Status.Message, ""))
}

// WhyEnded says why the kubelet ends a pod, or somebody else took it away; empty when there is no more to know. known is false
// while the kubelet may still say it: it writes the reason when the pod's processes have ended.
func WhyEnded(ctx context.Context, objects apicache.Reader, name types.NamespacedName, uid string) (why string, known bool, err error) {
	pod := &corev1.Pod{}
	found, err := objects.FindLive(ctx, name, pod)
	switch {
	case err != nil:
		return "", false, err
	case !found || string(pod.UID) != uid:
		return "", true, nil
	}
	if why := SaidEnd(pod); why != "" {
		return why, true, nil
	}
	// The kubelet's Event comes before the pod's status.
	evicted, err := LastEvent(ctx, objects, pod, "Evicted")
	if err != nil {
		return "", false, err
	}
	if evicted != nil {
		return Sentence("Evicted", evicted.Message, ""), true, nil
	}
	return "", pod.DeletionTimestamp != nil || HasPodEnded(pod), nil
}
