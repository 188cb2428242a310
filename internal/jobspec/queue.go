package jobspec

import (
	"strings"

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
	for _, label := range []string{LabelQueue, LabelQueuePriority} {
		if value := env.Labels[label]; value != "" {
			queue[label] = value
		}
	}
	return queue
}

// ChosenQueue is the queue that a call chooses by its label, "" when it leaves that to its environment. One that the
// environment doesn't offer isn't chosen: whoever may create calls could leave the queue that its namespace's Jobs come
// into without a label. A call's priority never counts.
func ChosenQueue(env *v1alpha1.ExecutionEnvironment, call *v1alpha1.ToolCall) string {
	wanted := call.Labels[LabelQueue]
	if wanted == "" || wanted == env.Labels[LabelQueue] {
		return ""
	}
	for offered := range strings.SplitSeq(env.Annotations[v1alpha1.AnnotationQueues], ",") {
		if strings.TrimSpace(offered) == wanted {
			return wanted
		}
	}
	return ""
}
