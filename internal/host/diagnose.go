package host

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/jobspec"
)

// Problem is what a Job or pod that has not started its runner says about why.
type Problem struct {
	Reason, Message string
	// Final says that waiting doesn't help.
	Final bool
	// NoCredential says that the pod waits for the Secret with its token.
	NoCredential bool
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

// CurrentPod is a Job's pod of the time since the Job could start; nil when there is none.
func CurrentPod(ctx context.Context, objects apicache.Reader, job *batchv1.Job) (*corev1.Pod, error) {
	pod, err := objects.PodOf(ctx, job)
	if err != nil || pod == nil || IsFromBefore(pod, job) {
		return nil, err
	}
	return pod, nil
}

// Diagnose says what keeps a Job from starting its runner, nil when nothing is known to, and when to look again for what changes without a
// word, 0 for never. Of a suspended Job only its own status counts.
func Diagnose(ctx context.Context, objects apicache.Reader, job *batchv1.Job, now time.Time) (found *Problem, again time.Duration, err error) {
	if jobspec.IsSuspended(job) {
		return DiagnoseJob(job), 0, nil
	}
	pod, err := CurrentPod(ctx, objects, job)
	if err != nil {
		return nil, 0, err
	}
	if found, err = diagnose(ctx, objects, job, pod, now); err != nil {
		return nil, 0, err
	}
	return found, lookAgain(pod, found, now), nil
}

// MayStart reports whether neither a Job nor its current pod says that the pod can't start. It reads the cache only.
func MayStart(ctx context.Context, objects apicache.Reader, job *batchv1.Job) (bool, error) {
	pod, err := CurrentPod(ctx, objects, job)
	return err == nil && DiagnoseJob(job) == nil && (pod == nil || DiagnosePod(pod, job.Name) == nil), err
}

func diagnose(ctx context.Context, objects apicache.Reader, job *batchv1.Job, pod *corev1.Pod, now time.Time) (*Problem, error) {
	if pod != nil {
		found := DiagnosePod(pod, job.Name)
		if found == nil && !isNew(pod, now) && isBeingSetUp(pod) {
			return heldUp(ctx, objects, pod)
		}
		return found, nil
	}
	if found := DiagnoseJob(job); found != nil {
		return found, nil
	}
	if now.Sub(jobspec.StartsFrom(job)) < podWait {
		return nil, nil
	}
	last, err := LastEvent(ctx, objects, job, "FailedCreate")
	if err != nil || last == nil {
		return nil, err
	}
	return podRefused(last.Message), nil
}

// maxEvents bounds the Events about an object that are looked through.
const maxEvents = 50

// LastEvent is the newest Event about an object that has one of some reasons; nil when there is none.
func LastEvent(ctx context.Context, objects apicache.Reader, of client.Object, reasons ...string) (last *corev1.Event, err error) {
	about := fields.Set{"involvedObject.uid": string(of.GetUID())}
	if len(reasons) == 1 {
		about["reason"] = reasons[0]
	}
	events := &corev1.EventList{}
	err = objects.Live.List(ctx, events, client.InNamespace(of.GetNamespace()), client.Limit(maxEvents),
		client.MatchingFieldsSelector{Selector: about.AsSelector()})
	if err != nil {
		return nil, fmt.Errorf("list the Events about %s: %w", of.GetName(), err)
	}
	for i := range events.Items {
		if e := &events.Items[i]; slices.Contains(reasons, e.Reason) && (last == nil || last.LastTimestamp.Before(&e.LastTimestamp)) {
			last = e
		}
	}
	return last, nil
}

func isNew(pod *corev1.Pod, now time.Time) bool {
	return now.Sub(pod.CreationTimestamp.Time) < setUpWait
}

// isBeingSetUp says that a pod has its node, and not yet all that its containers need before their images: volumes, and a sandbox.
func isBeingSetUp(pod *corev1.Pod) bool {
	isSetUp := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue
	})
	return pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName != "" && !isSetUp
}

// setUpReasons are of the Events in which alone the kubelet and the controller of volumes say why a pod isn't set up. They try again.
var setUpReasons = []string{"FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox"}

// heldUp says why a pod isn't set up; nil when nobody says it.
func heldUp(ctx context.Context, objects apicache.Reader, pod *corev1.Pod) (*Problem, error) {
	last, err := LastEvent(ctx, objects, pod, setUpReasons...)
	if err != nil || last == nil {
		return nil, err
	}
	return &Problem{Reason: v1alpha1.ReasonNotStarted, Message: Sentence("the pod's start is held up", last.Reason, last.Message)}, nil
}

// podRefused says what follows when the API server doesn't take a Job's pod. The Job controller tries again.
func podRefused(message string) *Problem {
	if quota := apicache.FullQuota(message); quota != "" {
		return &Problem{Reason: v1alpha1.ReasonQuotaExceeded, Message: "the pod waits: " + quota}
	}
	passes := isTransient(message) || strings.Contains(message, "Internal error occurred")
	return &Problem{Final: !passes && isRefusal(message), Reason: v1alpha1.ReasonPodRejected, Message: "the pod was refused: " + message}
}

// refusalSigns are parts of what the API server says of a pod that it never takes.
var refusalSigns = []string{"is forbidden:", "is invalid:", "denied the request", "not found"}

func isRefusal(message string) bool { return hasSign(message, refusalSigns) }

// DiagnosePod says what keeps a pod from starting its runner; nil when nothing does.
func DiagnosePod(pod *corev1.Pod, credential string) *Problem {
	if found := diagnoseRunner(pod); found != nil {
		return found
	}
	if status := containerStatus(pod); status != nil {
		if found := diagnoseContainer(status.State, credential); found != nil {
			return found
		}
	}
	ended := &Problem{Final: true, Reason: v1alpha1.ReasonPodRejected, Message: Sentence("the pod ended before the command could start", endReason(pod), endMessage(pod))}
	switch taken := disruption(pod); {
	case hasPhaseEnded(pod) && taken != nil:
		return &Problem{Final: true, Reason: v1alpha1.ReasonPodLost, Message: Sentence("the pod was taken away before the command could start", taken.Reason, taken.Message)}
	case hasPhaseEnded(pod):
		return ended
	case pod.DeletionTimestamp != nil:
		return &Problem{Final: true, Reason: v1alpha1.ReasonPodLost, Message: "the pod was deleted before the command could start"}
	case Terminated(pod) != nil:
		// Another container goes on.
		return ended
	}
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Type != corev1.PodScheduled || c.Status != corev1.ConditionFalse:
		case c.Reason == corev1.PodReasonUnschedulable:
			return &Problem{Reason: v1alpha1.ReasonUnschedulable, Message: "no node takes the pod: " + c.Message}
		default:
			return &Problem{Reason: v1alpha1.ReasonNotStarted, Message: Sentence("the pod waits for a node", c.Reason, c.Message)}
		}
	}
	return nil
}

// containerStatus is the kubelet's word about the container with our runner; nil when there is none yet.
func containerStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == jobspec.ContainerName {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

func diagnoseContainer(state corev1.ContainerState, credential string) *Problem {
	switch {
	case state.Waiting != nil && imageReasons[state.Waiting.Reason]:
		message := Sentence("the image can't be pulled", state.Waiting.Reason, state.Waiting.Message)
		return &Problem{Final: !mayPullLater(state.Waiting), Reason: v1alpha1.ReasonImagePullFailed, Message: message}
	case state.Waiting != nil && containerReasons[state.Waiting.Reason]:
		if strings.Contains(state.Waiting.Message, fmt.Sprintf("secret %q not found", credential)) {
			return &Problem{NoCredential: true}
		}
		return &Problem{Final: !isTransient(state.Waiting.Message), Reason: v1alpha1.ReasonInvalidEnvironment, Message: Sentence("the container can't be made", state.Waiting.Reason, state.Waiting.Message)}
	case state.Terminated != nil && containerReasons[state.Terminated.Reason] && isTransient(state.Terminated.Message):
		// The kubelet or its runtime was restarted at that moment, and doesn't try this pod again.
		return &Problem{Final: true, Reason: v1alpha1.ReasonPodLost, Message: Sentence("the pod was given up while its container was being started", state.Terminated.Reason, state.Terminated.Message)}
	case state.Terminated != nil && containerReasons[state.Terminated.Reason]:
		return &Problem{Final: true, Reason: v1alpha1.ReasonInvalidEnvironment, Message: Sentence("the container can't be started", state.Terminated.Reason, state.Terminated.Message)}
	default:
		return nil
	}
}

// diagnoseRunner says what keeps the init container, where there is one, from bringing the runner.
func diagnoseRunner(pod *corev1.Pod) *Problem {
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		if status.Name != jobspec.RunnerContainerName {
			continue
		}
		found := diagnoseContainer(status.State, "")
		// A pod that is taken away meanwhile ends its containers, too.
		wasStopped := pod.DeletionTimestamp != nil || disruption(pod) != nil
		if ended := status.State.Terminated; found == nil && !wasStopped && ended != nil && ended.ExitCode != 0 {
			found = &Problem{Final: true, Reason: v1alpha1.ReasonPodRejected, Message: Sentence("it ended with code "+strconv.Itoa(int(ended.ExitCode)), ended.Reason, strings.TrimSpace(ended.Message))}
		}
		if found != nil {
			found.Message = "the init container " + status.Name + " can't bring the runner: " + found.Message
		}
		return found
	}
	return nil
}

// transientSigns are parts of the kubelet's messages. The second line is what it says when its connection to the container runtime
// breaks, because that was restarted; the last one when the runtime still makes the container that the kubelet gave up on, and asks
// for again.
var transientSigns = []string{
	"failed to sync", "timed out", "deadline exceeded", "connection refused", "no relationship found",
	"error reading from server", "EOF", "connection reset", "broken pipe", "transport is closing", "ttrpc: closed",
	"code = Unavailable", "context canceled", "dial unix",
	"failed to reserve container name", "name is already in use",
}

// pullSigns are parts of what the kubelet says of an image that it may well get the next time: the registry or its name server
// can't be reached, doesn't answer, or has too much to do, or the kubelet itself has; or the node's disk is full, which the kubelet frees.
var pullSigns = []string{
	"pull QPS exceeded", "i/o timeout", "TLS handshake timeout", "server misbehaving", "toomanyrequests", "Too Many Requests",
	"Internal Server Error", "Bad Gateway", "Service Unavailable", "Gateway Timeout", "Gateway Time-out",
	"no route to host", "network is unreachable", "Temporary failure in name resolution", "no space left on device",
}

// mayPullLater says that the kubelet may get an image when it tries again. It pauses between, and some kubelets don't repeat why: each
// try says it before.
func mayPullLater(waits *corev1.ContainerStateWaiting) bool {
	isPause := waits.Reason == "ImagePullBackOff" && !strings.Contains(waits.Message, ": ")
	return isPause || waits.Reason == "RegistryUnavailable" || isTransient(waits.Message) || hasSign(waits.Message, pullSigns)
}

func hasSign(message string, signs []string) bool {
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(message, sign) })
}

// isTransient says that the kubelet failed at something that goes better the next time it tries: on a busy node it
// may give up on a Secret before its watch has brought it, or before the API server lets it have that.
func isTransient(message string) bool {
	return hasSign(message, transientSigns)
}

// DiagnoseJob says what the Job's own status tells when it has no pod.
func DiagnoseJob(job *batchv1.Job) *Problem {
	if job.DeletionTimestamp != nil {
		return &Problem{Final: true, Reason: v1alpha1.ReasonPodLost, Message: "the Job was deleted before the command could start"}
	}
	for _, c := range job.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobFailed:
			return &Problem{Final: true, Reason: v1alpha1.ReasonPodLost, Message: Sentence("the Job ended before the command could start", c.Reason, c.Message)}
		case c.Type == batchv1.JobComplete:
			return &Problem{Final: true, Reason: v1alpha1.ReasonPodRejected, Message: "the pod ended before the command could start"}
		}
	}
	return nil
}

// StartTimeout says that something waited too long for its start, with the best guess at why: the command of a call, or the
// pod of a session.
func StartTimeout(what string, seconds int32, found *Problem) *Problem {
	late := &Problem{
		Final: true, Reason: v1alpha1.ReasonStartTimeout,
		Message: fmt.Sprintf("%s did not start within %d s (startTimeoutSeconds of the environment)", what, seconds),
	}
	if found != nil {
		if found.Reason != v1alpha1.ReasonNotStarted {
			late.Reason = found.Reason
		}
		late.Message += ": " + found.Message
	}
	return late
}

// Sentence joins what happened with the reason and message that somebody else gives for it.
func Sentence(what, reason, message string) string {
	parts := []string{what, strings.TrimSpace(reason), strings.TrimSpace(message)}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}

// Capitalized begins a text with an upper-case letter.
func Capitalized(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if first == utf8.RuneError {
		return text
	}
	return string(unicode.ToUpper(first)) + text[size:]
}
