package decide

import (
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/guards"
)

// Edited refuses a call whose spec was changed after it was created; nil for any other. The admission policy
// toolcall-update refuses such a change. Where it isn't in force, what was checked and what would run could differ.
func Edited(call *v1alpha1.ToolCall) *Refusal {
	if !call.IsEdited() {
		return nil
	}
	return denied(&guards.Denial{
		Reason: v1alpha1.ReasonInvalidArguments,
		Message: "the spec was changed after the call was created, which only spec.cancel may be: create a new call. " +
			"The ValidatingAdmissionPolicy toolcall-update of config/admission refuses the change itself",
	})
}

// Cancelled is the message of a call that was cancelled before its command started.
func Cancelled(call *v1alpha1.ToolCall) string {
	const start = "the call was not run because it came back from a backup or was applied by somebody else: "
	switch call.Annotations[v1alpha1.AnnotationRestored] {
	case "":
		return "the call was cancelled before its command started"
	case v1alpha1.RestoredRequester:
		return start + "spec.requestedBy named another user than the one who created it. Create a new call without spec.requestedBy"
	case v1alpha1.RestoredStatus:
		return start + "it came with the status of a call that had ended. Create a new call without a status"
	default:
		return start + "it has the mark of a tool that restores or migrates objects. Create a new call without that mark"
	}
}
