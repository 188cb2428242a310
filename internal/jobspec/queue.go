package jobspec

import "toolcall.dev/operator/api/v1alpha1"

// Labels by which Kueue queues a Job.
const (
	LabelQueue         = "kueue.x-k8s.io/queue-name"
	LabelQueuePriority = "kueue.x-k8s.io/priority-class"
)

// queueLabels are the environment's, for each of its Jobs. A call's own don't count: whoever may create calls could
// leave the queue that its namespace's Jobs come into without a label, or go before everybody else.
func queueLabels(env *v1alpha1.ExecutionEnvironment) map[string]string {
	queue := map[string]string{}
	for _, label := range []string{LabelQueue, LabelQueuePriority} {
		if value := env.Labels[label]; value != "" {
			queue[label] = value
		}
	}
	return queue
}
