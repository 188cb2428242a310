package decide

import (
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/guards"
)

// Refusal ends a call before anything is made for it. The user has to change something; nothing is retried.
type Refusal struct {
	Reason, Message string
	// Denied says that a guard refused the call: it ends Denied, otherwise Failed.
	Denied bool
	// Environment is the name of the environment in effect, where that is known.
	Environment string
	// Alternatives, Line and Column are those of a guard's denial.
	Alternatives []string
	Line, Column int
}

func (e *Refusal) Error() string { return e.Reason + ": " + e.Message }

// Refuse makes a Refusal that fails the call.
func Refuse(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// deny makes a Refusal that denies the call.
func deny(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...), Denied: true}
}

// denied makes a Refusal of a guard's denial.
func denied(d *guards.Denial) *Refusal {
	return &Refusal{Reason: d.Reason, Message: d.Message, Denied: true, Alternatives: d.Alternatives, Line: d.Line, Column: d.Column}
}

// Edited refuses a call whose spec was changed after it was created; nil for any other. The admission policy
// toolcall-update refuses such a change. Where it isn't in force, what was checked and what would run could differ.
func Edited(call *v1alpha1.ToolCall) *Refusal {
	if !call.IsEdited() {
		return nil
	}
	return deny(v1alpha1.ReasonInvalidArguments, "the spec was changed after the call was created, which only spec.cancel may be: create a new call. "+
		"The ValidatingAdmissionPolicy toolcall-update of config/admission refuses the change itself")
}

// Cancelled is the message of a call that was cancelled before its command started.
func Cancelled(call *v1alpha1.ToolCall) string {
	if mark := call.Annotations[v1alpha1.AnnotationRestored]; mark != "" {
		return "the call was not run" + restored(mark, "call")
	}
	return "the call was cancelled before its command started"
}

// EndRequested is the message of a session that somebody ended.
func EndRequested(session *v1alpha1.ToolSession) string {
	mark := session.Annotations[v1alpha1.AnnotationRestored]
	switch {
	case mark != "" && session.Spec.End:
		return "the session runs no calls" + restored(mark, "session")
	case session.Spec.End:
		return "the session was ended by spec.end"
	default:
		return "the session was deleted"
	}
}

// restored says why what came back from a backup doesn't run.
func restored(mark, noun string) string {
	const start = " because it came back from a backup or was applied by somebody else: "
	switch mark {
	case v1alpha1.RestoredRequester:
		return start + "spec.requestedBy named another user than the one who created it. Create a new " + noun + " without spec.requestedBy"
	case v1alpha1.RestoredStatus:
		return start + "it came with the status of a " + noun + " that had ended. Create a new " + noun + " without a status"
	default:
		return start + "it has the mark of a tool that restores or migrates objects. Create a new " + noun + " without that mark"
	}
}

// Undecided says that nobody answers whether the requester may use the tool. Nothing runs until somebody does.
type Undecided struct {
	Cause error
	// Environment is the one in effect, whose start timeout bounds how long the call waits for an answer.
	Environment *v1alpha1.ExecutionEnvironment
	// Otherwise ends a call that has waited for too long.
	Otherwise *Refusal
}

func (e *Undecided) Error() string { return "undecided: " + e.Cause.Error() }

// Unwrap gives the cause.
func (e *Undecided) Unwrap() error { return e.Cause }

// ReviewAnswer reads the answer to an access review. A no that comes with an evaluation error is no answer, as it is
// none to the API server itself: an authorizer failed that might have said something else.
func ReviewAnswer(answer *authorizationv1.SubjectAccessReviewStatus) (bool, error) {
	if !answer.Allowed && answer.EvaluationError != "" {
		return false, fmt.Errorf("the API server's authorizer failed: %s", answer.EvaluationError)
	}
	return answer.Allowed, nil
}
