package toolcall

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
)

// The functions of this file are pure: each makes the status that a call gets from what was observed, whole, and leaves
// the observation as it is.

// withJob is the observation with the call's Job, which was made or claimed in this pass.
func (o *observation) withJob(job *batchv1.Job) *observation {
	next := *o
	next.job = job
	return &next
}

// withAction is the observation of a call whose input was read past the cache.
func (o *observation) withAction(whole *v1alpha1.ToolCall) *observation {
	action, unmapped := guards.Map(&whole.Spec)
	if unmapped != nil || o.call.Status.Action != nil {
		return o
	}
	next := *o
	next.call = o.call.DeepCopy()
	next.call.Status.Action = &v1alpha1.MappedAction{Type: action.Type, Tool: bounds.Text(action.Tool(), v1alpha1.MaxToolBytes), Summary: action.Summary()}
	return &next
}

// decided is the observation with a fresh decision.
func (o *observation) decided(whole *v1alpha1.ToolCall, decision *decide.Decision) *observation {
	next := *o.withAction(whole)
	next.decision = decision
	if decision.Approval == nil && next.call.Status.Approval != nil {
		// The policy has changed since it was asked for.
		next.call = next.call.DeepCopy()
		next.call.Status.Approval = nil
		meta.RemoveStatusCondition(&next.call.Status.Conditions, v1alpha1.ConditionApproved)
	}
	return &next
}

// draft is a status that is being written.
type draft struct {
	*v1alpha1.ToolCallStatus
	o *observation
}

// draft begins a new status with what is known of the call by now. Every condition is there.
func (o *observation) draft() *draft {
	s := &draft{o.call.Status.DeepCopy(), o}
	s.ObservedGeneration = o.call.Generation
	// What the call waited for.
	s.Reason, s.Message = "", ""
	if s.Phase == "" {
		s.Phase = v1alpha1.PhasePending
	}
	if s.Timings == nil {
		s.Timings = &v1alpha1.CallTimings{}
	}
	if d := o.decision; d != nil {
		if s.Environment == nil {
			s.Environment = &v1alpha1.ResolvedEnvironment{}
		}
		s.Environment.Name, s.Environment.Trusted = d.Environment, d.Plan.Trusted
		if d.TimeoutMilliseconds > 0 {
			s.TimeoutSeconds = ptr.To(int32((d.TimeoutMilliseconds + 999) / 1000))
		}
		s.Timings.AcceptedMilliseconds = ptr.To(d.Accepted().Sub(d.Created()).Milliseconds())
	}
	if o.job != nil {
		s.Job = o.job.Name
		if s.Timings.Path == "" {
			s.Timings.Path = v1alpha1.PathCold
		}
	}
	s.set(v1alpha1.ConditionFinished, metav1.ConditionFalse, v1alpha1.ReasonInProgress, "the call has not ended")
	s.set(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonInProgress, "the call has not ended")
	return s
}

// set writes one condition, which became so now if it was otherwise before.
func (s *draft) set(kind string, value metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: bounds.Text(message, v1alpha1.MaxConditionMessageBytes),
		ObservedGeneration: s.o.call.Generation, LastTransitionTime: metav1.NewTime(s.o.now),
	})
}

// setAccepted says that the guards passed, since the call was decided about.
func (s *draft) setAccepted(message string) {
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonGuardsPassed,
		Message:            bounds.Text(message, v1alpha1.MaxConditionMessageBytes),
		ObservedGeneration: s.o.call.Generation, LastTransitionTime: metav1.NewTime(s.o.decision.Accepted()),
	})
}

// undecided says that a guard can't tell yet whether the call may run.
func (o *observation) undecided() *v1alpha1.ToolCallStatus {
	s := o.draft()
	s.set(v1alpha1.ConditionAccepted, metav1.ConditionUnknown, v1alpha1.ReasonUndecided,
		"the API server has not answered yet whether the requester may use the tool, or the session; the operator asks again")
	s.setWaiting(v1alpha1.ReasonNotStarted, "it isn't known yet whether the call may run")
	if o.session != nil {
		s.setSession()
	}
	return s.ToolCallStatus
}

// acceptedMessage is the message of an accepted call.
func acceptedMessage(call *v1alpha1.ToolCall, job *batchv1.Job) string {
	wanted := call.Labels[jobspec.LabelQueue]
	if job == nil || job.Labels == nil || wanted == "" || wanted == job.Labels[jobspec.LabelQueue] {
		return "the call may run"
	}
	return fmt.Sprintf("the call may run, but its label %s means nothing: queue %q isn't in the environment's queues", jobspec.LabelQueue, wanted)
}

// pending says what a call waits for, and that it may run if it was decided about. The condition Started tells since when it waits.
func (o *observation) pending(reason, message string) *v1alpha1.ToolCallStatus {
	s := o.draft()
	switch {
	case o.decision != nil:
		s.setAccepted(acceptedMessage(o.call, o.job))
	case reason == v1alpha1.ReasonBudgetExhausted:
		s.set(v1alpha1.ConditionAccepted, metav1.ConditionUnknown, v1alpha1.ReasonUndecided, "the call is decided about when its budgets have room for its input")
	default:
		s.set(v1alpha1.ConditionAccepted, metav1.ConditionUnknown, v1alpha1.ReasonUndecided, "the call is decided about when its session takes calls")
	}
	s.setWaiting(reason, message)
	if o.session != nil {
		s.setSession()
	}
	return s.ToolCallStatus
}

// setWaiting says what a call waits for, and keeps since when it waits for that.
func (s *draft) setWaiting(reason, message string) {
	before := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStarted)
	if before != nil && before.Status == metav1.ConditionFalse && before.Reason != reason {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionStarted)
	}
	s.set(v1alpha1.ConditionStarted, metav1.ConditionFalse, reason, message)
	s.Reason, s.Message = reason, bounds.Text(host.Capitalized(message), v1alpha1.MaxMessageBytes)
}

// notStarted says why a call doesn't start. The condition has one reason for all of that: one time limit counts.
func (o *observation) notStarted(reason, message string) *v1alpha1.ToolCallStatus {
	s := o.pending(v1alpha1.ReasonNotStarted, message)
	s.Reason = reason
	return s
}

// accepted says that the call has its Job, and whether that may start.
func (o *observation) accepted() *v1alpha1.ToolCallStatus {
	if jobspec.IsSuspended(o.job) {
		return o.pending(v1alpha1.ReasonSuspended, suspendedMessage(o.job))
	}
	return o.pending(v1alpha1.ReasonNotStarted, "the pod has not started")
}

func suspendedMessage(job *batchv1.Job) string {
	if queue := job.Labels[jobspec.LabelQueue]; queue != "" {
		return fmt.Sprintf("the call's Job is suspended: it waits in queue %q", queue)
	}
	return "the call's Job is suspended: it waits until its spec.suspend is false"
}

// running says which runner has the call. What is recorded here never changes.
func (o *observation) running(bound *v1alpha1.RunnerBinding, hello wire.Hello, path v1alpha1.Path) *v1alpha1.ToolCallStatus {
	s := o.draft()
	s.setAccepted(acceptedMessage(o.call, o.job))
	s.Phase = v1alpha1.PhaseRunning
	s.Pod, s.Node, s.Runner = hello.Pod, hello.Node, bound
	s.Timings.Path = path
	s.Timings.StartedMilliseconds = o.milliseconds()
	s.set(v1alpha1.ConditionStarted, metav1.ConditionTrue, v1alpha1.ReasonAssigned, "the call was given to its pod")
	return s.ToolCallStatus
}

func millisecondsBetween(from, to time.Time) *int64 {
	return ptr.To(max(to.Sub(from).Milliseconds(), 0))
}

// fail ends a call that did not run to its own end.
func (o *observation) fail(reason, message string) *v1alpha1.ToolCallStatus {
	return o.end(v1alpha1.PhaseFailed, reason, message)
}

// refuse ends a call that nothing was made for.
func (o *observation) refuse(why *decide.Refusal) *v1alpha1.ToolCallStatus {
	phase := v1alpha1.PhaseFailed
	if why.Denied {
		phase = v1alpha1.PhaseDenied
	}
	s := o.end(phase, why.Reason, why.Message)
	if s.Environment == nil && why.Environment != "" {
		s.Environment = &v1alpha1.ResolvedEnvironment{Name: why.Environment}
	}
	return s
}

// end writes the terminal phase, and all that follows from it alone.
func (o *observation) end(phase v1alpha1.Phase, reason, message string) *v1alpha1.ToolCallStatus {
	message = bounds.Text(host.Capitalized(message), v1alpha1.MaxMessageBytes)
	s := o.draft()
	s.Phase, s.Reason, s.Message = phase, reason, message
	// Of a command that ran there is more to tell: see withResult.
	s.Output = message
	s.Timings.FinishedMilliseconds = o.milliseconds()
	started := o.isHandedOver()
	if phase == v1alpha1.PhaseFailed || phase == v1alpha1.PhaseCancelled {
		s.RetrySafe = ptr.To(!started)
	}
	switch {
	case phase == v1alpha1.PhaseDenied:
		// Also where the guards had passed before: they were asked again, or the call was edited.
		s.set(v1alpha1.ConditionAccepted, metav1.ConditionFalse, reason, message)
	case o.decision != nil:
		s.setAccepted("the call may run")
	case started:
		s.set(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonGuardsPassed, "the call may run")
	case !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionAccepted):
		s.set(v1alpha1.ConditionAccepted, metav1.ConditionFalse, reason, message)
	}
	switch {
	case o.isBound():
		// The decision isn't needed any more.
		s.Runner.Decision = ""
	case started:
		s.setSession()
		s.setHandedOver()
	default:
		s.set(v1alpha1.ConditionStarted, metav1.ConditionFalse, v1alpha1.ReasonNotStarted, "no command was started")
	}
	if s.Approval != nil && !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionApproved) {
		s.set(v1alpha1.ConditionApproved, metav1.ConditionFalse, reason, message)
	}
	s.set(v1alpha1.ConditionFinished, metav1.ConditionTrue, reason, message)
	succeeded := metav1.ConditionFalse
	if phase == v1alpha1.PhaseSucceeded {
		succeeded = metav1.ConditionTrue
	}
	s.set(v1alpha1.ConditionSucceeded, succeeded, reason, message)
	return s.ToolCallStatus
}

// neverStarted is the end of a call whose runner is recorded and certainly has not started the command.
func (o *observation) neverStarted(phase v1alpha1.Phase, reason, message string) *v1alpha1.ToolCallStatus {
	s := o.end(phase, reason, message)
	s.RetrySafe = ptr.To(true)
	return s
}
