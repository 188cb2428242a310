package jobspec

import (
	"slices"

	"toolcall.dev/operator/api/v1alpha1"
)

// Labels by which Kueue queues a Job.
const (
	LabelQueue         = "kueue.x-k8s.io/queue-name"
	LabelQueuePriority = "kueue.x-k8s.io/priority-class"
)

// queueLabels are the environment's, for each of its Jobs.
func queueLabels(env *v1alpha1.ExecutionEnvironment) map[string]string {
	queue := map[string]string{}
	if own := DefaultQueue(env); own != "" {
		queue[LabelQueue] = own
	}
	if priority := env.Labels[LabelQueuePriority]; priority != "" {
		queue[LabelQueuePriority] = priority
	}
	return queue
}

// DefaultQueue is the queue of the environment's calls that choose none, "" when there is none.
func DefaultQueue(env *v1alpha1.ExecutionEnvironment) string {
	if len(env.Spec.Queues) == 0 {
		return ""
	}
	return env.Spec.Queues[0]
}

// ChosenQueue is the queue that a call chooses by its label, "" when it leaves that to its environment. One that the
// environment doesn't offer isn't chosen: whoever may create calls could leave the queue that its namespace's Jobs come
// into without a label. A call's priority never counts.
func ChosenQueue(env *v1alpha1.ExecutionEnvironment, call *v1alpha1.ToolCall) string {
	wanted := call.Labels[LabelQueue]
	if wanted == DefaultQueue(env) || !slices.Contains(env.Spec.Queues, wanted) {
		return ""
	}
	return wanted
}
