package approval

import (
	"cmp"
	"slices"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
)

// Rejection says why a decision doesn't count.
type Rejection struct {
	// Reason is one of those of a ToolCallApproval.
	Reason, Message string
}

// Reject says why a decision about a call that waits for one doesn't count, whatever others decide; nil for one that does. The call
// is the one that the decision names. counted are the approvals before it. One that was made in time counts, however late that is.
func Reject(call *v1alpha1.ToolCall, a *v1alpha1.ToolCallApproval, counted []v1alpha1.CountedApproval, now time.Time) *Rejection {
	request := call.Status.Approval
	approves := a.Spec.Decision == v1alpha1.DecisionApprove
	switch {
	case a.Spec.CallRef.UID != string(call.UID):
		return &Rejection{v1alpha1.ReasonWrongDigest, "the decision is about another call of the name: its uid is not the one of callRef"}
	case request == nil:
		return &Rejection{v1alpha1.ReasonApprovalNotNeeded, "the call waits for no decision"}
	case a.Spec.Digest != request.Digest:
		return &Rejection{v1alpha1.ReasonWrongDigest, "the decision is about something else than what the call waits for now: read status.approval of the call, and decide again"}
	case !madeAt(a, now).Before(request.ExpiresAt.Time):
		return &Rejection{v1alpha1.ReasonApprovalExpired, "the decision came after status.approval.expiresAt of the call"}
	case a.ApproverName() == "":
		return &Rejection{v1alpha1.ReasonApproverUnknown, "nobody is known to have made the decision"}
	case approves && a.ApproverName() == call.RequesterName():
		return &Rejection{v1alpha1.ReasonOwnCall, "who created the call can't approve it: somebody else has to"}
	case approves && slices.ContainsFunc(counted, func(c v1alpha1.CountedApproval) bool { return c.Username == CountedOf(a).Username }):
		return &Rejection{v1alpha1.ReasonDuplicateDecision, "the same person approved the call before"}
	default:
		return nil
	}
}

// madeAt is when a decision was made, by the API server's clock in whole seconds, and now at the latest.
func madeAt(a *v1alpha1.ToolCallApproval, now time.Time) time.Time {
	if made := a.CreationTimestamp.Time; !made.IsZero() && made.Before(now) {
		return made
	}
	return now
}

// Tally is what the decisions about a call come to.
type Tally struct {
	// Denial is the one that ends the call; nil when there is none.
	Denial *v1alpha1.ToolCallApproval
	// ApprovedBy are the approvals that count, those that were counted before first, and never more than the call needs.
	ApprovedBy []v1alpha1.CountedApproval
}

// IsApproved says that enough people approved.
func (t *Tally) IsApproved(call *v1alpha1.ToolCall) bool {
	return t.Denial == nil && len(t.ApprovedBy) >= int(call.Status.Approval.Needed)
}

// Count counts the decisions about a call that waits for them. What was counted before counts, also where the object is gone. A
// denial wins over all approvals beside it.
func Count(call *v1alpha1.ToolCall, decisions []v1alpha1.ToolCallApproval, now time.Time) Tally {
	request := call.Status.Approval
	tally := Tally{ApprovedBy: slices.Clone(request.ApprovedBy)}
	decisions = slices.Clone(decisions)
	slices.SortFunc(decisions, func(a, b v1alpha1.ToolCallApproval) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	for i := range decisions {
		d := &decisions[i]
		if Reject(call, d, tally.ApprovedBy, now) != nil {
			continue
		}
		switch {
		case d.Spec.Decision == v1alpha1.DecisionDeny:
			tally.Denial = d
			return tally
		case d.Spec.Decision == v1alpha1.DecisionApprove && len(tally.ApprovedBy) < int(request.Needed):
			tally.ApprovedBy = append(tally.ApprovedBy, CountedOf(d))
		}
	}
	return tally
}

// CountedOf is what a call's status keeps of a decision that counts.
func CountedOf(a *v1alpha1.ToolCallApproval) v1alpha1.CountedApproval {
	return v1alpha1.CountedApproval{Name: a.Name, UID: string(a.UID), Username: bounds.Text(a.ApproverName(), v1alpha1.MaxApprovalNameBytes)}
}
