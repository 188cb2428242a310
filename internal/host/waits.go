package host

import (
	"time"

	"toolcall.dev/operator/internal/dispatch"
)

// PodWait is how long a Job may have no pod before its Events are asked why.
const PodWait = time.Second

// RetryPause is when to look again at what may change without a word.
const RetryPause = 10 * time.Second

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
