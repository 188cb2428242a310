package host

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/internal/dispatch"
)

// podWait is how long a Job may have no pod before its Events are asked why.
const podWait = time.Second

// RetryPause is when to look again at what may change without a word.
const RetryPause = 10 * time.Second

// setUpWait is how long a pod may take until its Events are asked why.
const setUpWait = 5 * time.Second

// lookAgain is when to look again at a Job without a runner, for what changes without a word: the Job's own pod, nil for none, says
// itself whatever else becomes of it. found is what was found now; 0 is never.
func lookAgain(pod *corev1.Pod, found *Problem, now time.Time) time.Duration {
	switch {
	case pod == nil && found == nil:
		return podWait
	case pod == nil:
		return RetryPause
	case !isBeingSetUp(pod):
		return 0
	case isNew(pod, now):
		return setUpWait - now.Sub(pod.CreationTimestamp.Time)
	default:
		return RetryPause
	}
}

// HeardUntil is a deadline, but never before the runners had the time to say what happened while no operator listened, and
// the operator to ask again for what it was refused before. heard is since when the operator listens; zero when it doesn't
// yet.
func HeardUntil(heard, now, deadline time.Time) time.Time {
	if heard.IsZero() {
		heard = now
	}
	if earliest := heard.Add(dispatch.ReconnectWait); deadline.Before(earliest) {
		return earliest
	}
	return deadline
}
