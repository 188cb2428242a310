package controllers

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// undecided says that a guard can't decide now: nobody said no. The question is asked again, and nothing runs until it
// is answered.
type undecided struct {
	cause error
	// again is when to ask.
	again time.Duration
}

func (e *undecided) Error() string { return e.cause.Error() }

func (e *undecided) Unwrap() error { return e.cause }

// How long to wait before a question is asked again: half of the time that it is open already, within these.
const (
	soonestAgain = 500 * time.Millisecond
	latestAgain  = 10 * time.Second
)

// askAgain is the error of a question that nobody answered, as long as the call may wait for its start; nil after
// that.
func (s *scope) askAgain(env *v1alpha1.ExecutionEnvironment, cause error) error {
	open := s.now.Sub(s.undecidedSince())
	left := startTimeoutOf(env) - open
	if left <= 0 {
		return nil
	}
	return &undecided{cause, min(left, max(soonestAgain, min(latestAgain, open/2)))}
}

// undecidedSince is when a guard first couldn't decide. A call that was given its pod already waits since then.
func (s *scope) undecidedSince() time.Time {
	kind, status := v1alpha1.ConditionAccepted, metav1.ConditionUnknown
	if s.bound() {
		kind, status = v1alpha1.ConditionStarted, metav1.ConditionTrue
	}
	if c := meta.FindStatusCondition(s.call.Status.Conditions, kind); c != nil && c.Status == status {
		return c.LastTransitionTime.Time
	}
	return s.now
}

// undecided says that a guard can't tell yet whether the call may run.
func (s *scope) undecided() {
	s.call.Status.Phase = v1alpha1.PhasePending
	s.setCondition(v1alpha1.ConditionAccepted, metav1.ConditionUnknown, v1alpha1.ReasonUndecided,
		"whether the call's creator may use the tool could not be found out yet; it is asked again", s.now)
	if meta.FindStatusCondition(s.call.Status.Conditions, v1alpha1.ConditionStarted) == nil {
		s.condition(v1alpha1.ConditionStarted, false, v1alpha1.ReasonNotStarted, "it isn't known yet whether the call may run")
	}
	s.inProgress()
}
