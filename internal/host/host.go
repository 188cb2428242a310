// Package host knows the pods with our runner in them that can take calls: made for one call, waiting in a pool, or a
// session's.
//
// A Host is a Job, its pod and the connection of its runner, as they were observed. The Registry holds the claims that
// calls and sessions have on waiting hosts. A call in a session has no claim: FindSessionHost finds the host of its session.
//
// A claim is in memory only. It becomes durable with the write that records the runner in the status of the call or the
// session; an operator that ends before that leaves a host that waits, and a call or a session that has none. The package
// writes nothing to the API: it returns what is to be made.
//
// A SessionHost says what is certain of the one process that a session records: which calls it may have got, how many
// more it can run, and whether it is gone. Until it is, its word alone ends those calls.
package host

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
)

// Host is a Job's pod with our runner in it, as it was observed.
type Host struct {
	Job *batchv1.Job
	// Pod is nil when the Job has none.
	Pod *corev1.Pod
	// Runner is nil when it isn't connected.
	Runner *dispatch.Runner
}

// IsIdle says that a host which no call has can take one: its runner is connected, and known to be in its pod.
func IsIdle(h Host) bool {
	if h.Job.DeletionTimestamp != nil || jobspec.HasEnded(h.Job) || h.Pod == nil || HasPodEnded(h.Pod) {
		return false
	}
	return h.Runner != nil && IsRunnerOf(h.Runner, h.Pod)
}

// IsRunnerOf says whether the runner is the one in the pod, and the pod is there to stay.
func IsRunnerOf(runner *dispatch.Runner, pod *corev1.Pod) bool {
	return string(pod.UID) == runner.Hello().PodUID && pod.DeletionTimestamp == nil
}
