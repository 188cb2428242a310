package toolcall

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
)

// times are the moments that deadlines are compared with.
type times struct {
	// now is the pass's. created is when the call was created, as well as the operator can know.
	now, created time.Time
	// heard is since when runners can reach this operator; what came before it can't have heard of.
	heard time.Time
}

// heardUntil is a deadline, but never before the runners could be heard.
func (t *times) heardUntil(deadline time.Time) time.Time {
	return host.HeardUntil(t.heard, t.now, deadline)
}

// milliseconds is the time since the call's creation.
func (t *times) milliseconds() *int64 { return millisecondsBetween(t.created, t.now) }

// startsFrom is since when the command could start: since the Job has been let run and the environment resumed.
func (o *observation) startsFrom() time.Time {
	from := jobspec.StartsFrom(o.job)
	c := meta.FindStatusCondition(o.call.Status.Conditions, v1alpha1.ConditionStarted)
	switch {
	case c == nil:
	case c.Reason == v1alpha1.ReasonEnvironmentSuspended:
		return o.now
	case c.Reason == v1alpha1.ReasonNotStarted && c.LastTransitionTime.After(from):
		return c.LastTransitionTime.Time
	}
	return from
}

const (
	// adoptWait is when the Job of a call that took a waiting pod becomes the call's own, if the call hasn't ended
	// before: most have. It never delays the result of a short call.
	adoptWait = 50 * time.Millisecond
	// longestRun is the highest timeouts.maxSeconds that the API takes.
	longestRun = 7 * 24 * time.Hour
	// runSlack is what may pass after a Job's own deadline until its end is seen.
	runSlack = 60 * time.Second
)

// startedLate says that the Job's deadline would end the call's pod before its limit does.
func (o *observation) startedLate(job *batchv1.Job) bool {
	return o.decision != nil && jobspec.EndsBefore(job, o.started().Add(runTime(o.decision.Timeout())))
}

// runTime is for how long a pod may be there after its call's start.
func runTime(limit time.Duration) time.Duration {
	return time.Duration(jobspec.RunSeconds(limit.Milliseconds())) * time.Second
}

// started is when it was recorded which runner has the call.
func (o *observation) started() time.Time {
	if t := o.call.Status.Timings; t != nil && t.StartedMilliseconds != nil {
		return o.created.Add(time.Duration(*t.StartedMilliseconds) * time.Millisecond)
	}
	return o.now
}

// runDeadline is when a call that started is over, whatever its runner does: the Job's own deadline has ended its pod.
func (o *observation) runDeadline() time.Time {
	limit := longestRun
	if o.decision != nil {
		limit = o.decision.Timeout()
	}
	started := meta.FindStatusCondition(o.call.Status.Conditions, v1alpha1.ConditionStarted)
	if started == nil {
		return o.now
	}
	over := started.LastTransitionTime.Add(runTime(limit))
	if o.job != nil {
		if ends := jobspec.EndsBy(o.job); ends.After(over) {
			over = ends
		}
	}
	return over.Add(runSlack)
}
