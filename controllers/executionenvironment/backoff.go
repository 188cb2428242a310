package executionenvironment

import (
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
)

// backoff is that of one environment's pool. It needs no lock: one environment has one pass at a time.
type backoff struct {
	template string
	// problem is why the pool's pods don't start; empty when they do.
	problem  string
	failures int
	// notBefore is when the next pod may be made after one failed.
	notBefore time.Time
	// lost has the Jobs whose runner was connected, and since when it isn't; zero while it is.
	lost map[types.UID]time.Time
	// written is when the environment's status was last written.
	written time.Time
}

// Bounds of the back-off between pods that don't start.
const (
	firstBackOff = 2 * time.Second
	lastBackOff  = 5 * time.Minute
)

// countFailure counts a pod that did not start.
func (b *backoff) countFailure(problem string, now time.Time) {
	wait := min(firstBackOff<<min(b.failures, 10), lastBackOff)
	b.failures++
	b.problem, b.notBefore = problem, now.Add(wait)
}

// setTemplate says what the pool's pods are made from now. Failures with another template don't count.
func (b *backoff) setTemplate(template string) {
	if b.template != template {
		*b = backoff{template: template, lost: b.lost, written: b.written}
	}
}

// lostSince is since when the runner of a Job isn't connected which was; false for one that never was.
func (b *backoff) lostSince(job types.UID, connected bool, now time.Time) (since time.Time, was bool) {
	if connected {
		if b.lost == nil {
			b.lost = map[types.UID]time.Time{}
		}
		b.lost[job] = time.Time{}
		return now, true
	}
	since, was = b.lost[job]
	if was && since.IsZero() {
		since = now
		b.lost[job] = now
	}
	return since, was
}

// keepOnly forgets the Jobs that aren't the pool's any more.
func (b *backoff) keepOnly(jobs []batchv1.Job) {
	there := map[types.UID]bool{}
	for i := range jobs {
		there[jobs[i].UID] = true
	}
	maps.DeleteFunc(b.lost, func(job types.UID, _ time.Time) bool { return !there[job] })
}

// reset forgets the failures: a pod waits.
func (b *backoff) reset() { b.failures, b.problem, b.notBefore = 0, "", time.Time{} }
