package controllers

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// finding is what a Job or pod that has not started its runner says about why.
type finding struct {
	reason, message string
	// final says that waiting doesn't help.
	final bool
	// credential says that the operator owes the pod its token.
	credential bool
}

// imageReasons are the kubelet's reasons for a container that waits for an image that it can't have.
var imageReasons = map[string]bool{
	"ErrImagePull": true, "ImagePullBackOff": true, "InvalidImageName": true, "ErrImageNeverPull": true,
	"ImageInspectError": true, "RegistryUnavailable": true, "SignatureValidationFailed": true,
}

// containerReasons are the kubelet's reasons for a container that can't be made from the pod as it is.
var containerReasons = map[string]bool{
	"CreateContainerConfigError": true, "CreateContainerError": true, "RunContainerError": true,
	"ContainerCannotRun": true, "StartError": true, "PreCreateHookError": true, "PreStartHookError": true,
}

// diagnosePod says what keeps a pod from starting its runner; nil when nothing does.
func diagnosePod(pod *corev1.Pod, credential string) *finding {
	for _, status := range pod.Status.ContainerStatuses {
		if found := diagnoseContainer(status.State, credential); found != nil {
			return found
		}
	}
	if over(pod) {
		if taken := disruption(pod); taken != nil {
			return &finding{final: true, reason: v1alpha1.ReasonPodLost, message: sentence("the pod was taken away before the command could start", taken.Reason, taken.Message)}
		}
		return &finding{final: true, reason: v1alpha1.ReasonPodRejected, message: sentence("the pod ended before the command could start", pod.Status.Reason, pod.Status.Message)}
	}
	if pod.DeletionTimestamp != nil {
		return &finding{final: true, reason: v1alpha1.ReasonPodLost, message: "the pod was deleted before the command could start"}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return &finding{reason: v1alpha1.ReasonUnschedulable, message: "no node takes the pod: " + c.Message}
		}
	}
	return nil
}

// over says that the pod as a whole has ended.
func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
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

func diagnoseContainer(state corev1.ContainerState, credential string) *finding {
	switch {
	case state.Waiting != nil && imageReasons[state.Waiting.Reason]:
		// The kubelet pulls some images a second, and tries again.
		throttled := strings.Contains(state.Waiting.Message, "pull QPS exceeded")
		return &finding{final: !throttled, reason: v1alpha1.ReasonImagePullFailed, message: sentence("the image can't be pulled", state.Waiting.Reason, state.Waiting.Message)}
	case state.Waiting != nil && containerReasons[state.Waiting.Reason]:
		if strings.Contains(state.Waiting.Message, fmt.Sprintf("secret %q not found", credential)) {
			return &finding{credential: true}
		}
		return &finding{final: !passing(state.Waiting.Message), reason: v1alpha1.ReasonInvalidEnvironment, message: sentence("the container can't be made", state.Waiting.Reason, state.Waiting.Message)}
	case state.Terminated != nil && containerReasons[state.Terminated.Reason] && passing(state.Terminated.Message):
		// The kubelet or its runtime was restarted at that moment, and doesn't try this pod again.
		return &finding{final: true, reason: v1alpha1.ReasonPodLost, message: sentence("the pod was given up while its container was being started", state.Terminated.Reason, state.Terminated.Message)}
	case state.Terminated != nil && containerReasons[state.Terminated.Reason]:
		return &finding{final: true, reason: v1alpha1.ReasonInvalidEnvironment, message: sentence("the container can't be started", state.Terminated.Reason, state.Terminated.Message)}
	default:
		return nil
	}
}

// passingSigns are parts of the kubelet's messages. The last ones are what it says when its connection to the
// container runtime breaks, because that was restarted.
var passingSigns = []string{
	"failed to sync", "timed out", "deadline exceeded", "connection refused", "no relationship found",
	"error reading from server", "EOF", "connection reset", "broken pipe", "transport is closing", "ttrpc: closed",
	"code = Unavailable", "context canceled", "dial unix",
}

// passing says that the kubelet failed at something that goes better the next time it tries: on a busy node it
// may give up on a Secret before its watch has brought it, or before the API server lets it have that.
func passing(message string) bool {
	for _, sign := range passingSigns {
		if strings.Contains(message, sign) {
			return true
		}
	}
	return false
}

// diagnoseJob says what the Job's own status tells when it has no pod.
func diagnoseJob(job *batchv1.Job) *finding {
	if job.DeletionTimestamp != nil {
		return &finding{final: true, reason: v1alpha1.ReasonPodLost, message: "the Job was deleted before the command could start"}
	}
	for _, c := range job.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobFailed:
			return &finding{final: true, reason: v1alpha1.ReasonPodLost, message: sentence("the Job ended before the command could start", c.Reason, c.Message)}
		case c.Type == batchv1.JobComplete:
			return &finding{final: true, reason: v1alpha1.ReasonPodRejected, message: "the pod ended before the command could start"}
		}
	}
	return nil
}

// startTimeout is the end of a call that waited too long, with the best guess at why.
func startTimeout(seconds int32, found *finding) finding {
	late := finding{reason: v1alpha1.ReasonStartTimeout, message: fmt.Sprintf("the command did not start within %d s (startTimeoutSeconds of the environment)", seconds)}
	if found != nil {
		late.reason = found.reason
		late.message += ": " + found.message
	}
	return late
}

// ended says that no process of the pod runs any more.
func ended(pod *corev1.Pod) bool {
	if over(pod) {
		return true
	}
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Terminated == nil {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) > 0
}

func sentence(what, reason, message string) string {
	parts := []string{what}
	for _, part := range []string{reason, message} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}
