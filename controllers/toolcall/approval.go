package toolcall

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/approval"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/decide"
)

// requestApproval asks people to decide about a call whose policy wants that; nil when none is needed, or when they approved exactly
// what would happen now. The call keeps its place in the line of its session, and nothing else.
func (r *Reconciler) requestApproval(ctx context.Context, j *judged) (*effects, error) {
	if j.decision.Approval == nil {
		return nil, nil
	}
	checked, err := r.snapshots.AcquireLarge(ctx, j.whole)
	if err != nil {
		return nil, err
	}
	defer checked()
	if have := j.call.Status.Approval; have != nil && meta.IsStatusConditionTrue(j.call.Status.Conditions, v1alpha1.ConditionApproved) {
		_, digest, err := approval.Summary(j.snapshot, j.decision, have.RequestedAt.Time)
		if err != nil || digest == have.Digest {
			return nil, err
		}
	}
	// The API keeps microseconds.
	asked := j.now.UTC().Truncate(time.Microsecond)
	summary, digest, err := approval.Summary(j.snapshot, j.decision, asked)
	if err != nil {
		return nil, err
	}
	request := requestOf(j.decision.Approval, asked)
	request.Summary, request.Digest = summary, digest
	return &effects{status: j.awaiting(request), leaveQueue: true, release: true, wake: request.ExpiresAt.Sub(j.now)}, nil
}

// requestOf is what a call's status says of what the policy wants.
func requestOf(need *decide.Approval, asked time.Time) *v1alpha1.ApprovalStatus {
	return &v1alpha1.ApprovalStatus{
		Needed:      min(max(need.Minimum, 1), v1alpha1.MaxApprovers),
		RequestedAt: metav1.NewMicroTime(asked), ExpiresAt: metav1.NewMicroTime(asked.Add(time.Duration(need.ExpiresSeconds) * time.Second)),
		Causes: firstTexts(need.Causes), Messages: firstTexts(need.Messages), Approvers: firstTexts(need.Approvers),
	}
}

// firstTexts are as many texts as a status keeps.
func firstTexts(texts []string) []string {
	texts = slices.Clone(texts[:min(len(texts), v1alpha1.MaxApprovalTexts)])
	for i := range texts {
		texts[i] = bounds.Text(texts[i], v1alpha1.MaxApprovalTextBytes)
	}
	return texts
}

// awaitApproval counts what people decided about a call. Nothing is decided anew before enough of them approved. The call gives up what an
// operator that has just started took for it before the session's process said that it doesn't have the call.
func (r *Reconciler) awaitApproval(ctx context.Context, o *observation) (effects, error) {
	if o.session != nil {
		refused, err := r.refuseSession(ctx, o)
		if err != nil || refused != nil {
			return ptr.Deref(refused, effects{}), err
		}
	}
	request := o.call.Status.Approval
	left := request.ExpiresAt.Sub(o.now)
	decisions, err := r.readDecisions(ctx, o, left <= 0)
	if err != nil {
		return effects{}, err
	}
	tally := approval.Count(o.call, decisions, o.now)
	switch {
	case tally.Denial != nil:
		return o.endUnapproved(tally.Denial), nil
	case left <= 0 && !tally.IsApproved(o.call) && len(tally.ApprovedBy) <= len(request.ApprovedBy):
		return o.endUnapproved(nil), nil
	case o.session != nil && (!o.session.isInLine || o.session.isExcluded):
		return effects{joinLine: true, leaveQueue: true, wake: time.Millisecond}, nil
	case tally.IsApproved(o.call):
		return r.startApproved(ctx, o, tally.ApprovedBy), nil
	case len(tally.ApprovedBy) > len(request.ApprovedBy):
		next := request.DeepCopy()
		next.ApprovedBy = tally.ApprovedBy
		return effects{status: o.awaiting(next), leaveQueue: true, wake: max(left, time.Millisecond)}, nil
	default:
		return effects{leaveQueue: true, wake: left}, nil
	}
}

// startApproved goes on in the same pass with a call that enough people approved, as if its status said so already: the call is decided
// about again, and starts only where that is still what they approved. One write then says who approved it and which runner has it. A
// Job isn't made before the status says who approved it, and what couldn't be read is read again in the pass after that write.
func (r *Reconciler) startApproved(ctx context.Context, o *observation, by []v1alpha1.CountedApproval) effects {
	next := *o
	next.call = o.call.DeepCopy()
	next.call.Status = *o.approved(by)
	e, err := r.runStage(ctx, &next)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "An approved call could not start yet")
	}
	if err != nil || e.create != nil {
		return effects{status: &next.call.Status}
	}
	if e.status == nil {
		e.status = &next.call.Status
	}
	return e
}

// readDecisions are the decisions about the call for which admission vouches: all that there are when the time for them is over, and before
// that those of which the cache knows.
func (r *decider) readDecisions(ctx context.Context, o *observation, isLast bool) ([]v1alpha1.ToolCallApproval, error) {
	read := r.Objects.Decisions
	if isLast {
		read = r.Objects.LiveDecisions
	}
	all, err := read(ctx, o.name)
	if err != nil {
		return nil, err
	}
	var vouched []v1alpha1.ToolCallApproval
	for i := range all {
		if all[i].Spec.Digest != o.call.Status.Approval.Digest || all[i].Status.Phase == v1alpha1.ApprovalRejected {
			continue
		}
		ok, _, err := r.Requesters.ApprovalVouched(ctx, &all[i])
		if err != nil {
			return nil, err
		}
		if ok {
			vouched = append(vouched, all[i])
		}
	}
	return vouched, nil
}

// awaiting says what people are asked, and how many approved by now.
func (o *observation) awaiting(request *v1alpha1.ApprovalStatus) *v1alpha1.ToolCallStatus {
	s := o.draft()
	if o.decision != nil {
		s.setAccepted(acceptedMessage(o.call, o.job))
	}
	s.Approval = request
	message := fmt.Sprintf("a person other than the caller has to approve the call: kubectl toolcall approve %s", o.call.Name)
	if request.Needed > 1 {
		message = fmt.Sprintf("%d people other than the caller have to approve the call, %d did: kubectl toolcall approve %s", request.Needed, len(request.ApprovedBy), o.call.Name)
	}
	s.set(v1alpha1.ConditionApproved, metav1.ConditionUnknown, v1alpha1.ReasonAwaitingApproval, message)
	s.setWaiting(v1alpha1.ReasonAwaitingApproval, message)
	if o.session != nil {
		s.setSession()
	}
	return s.ToolCallStatus
}

// approved says that enough people approved. The call is decided about again before it starts.
func (o *observation) approved(by []v1alpha1.CountedApproval) *v1alpha1.ToolCallStatus {
	s := o.draft()
	s.Approval.ApprovedBy = by
	names := make([]string, 0, len(by))
	for _, one := range by {
		names = append(names, one.Username)
	}
	s.set(v1alpha1.ConditionApproved, metav1.ConditionTrue, v1alpha1.ReasonApproved, fmt.Sprintf("approved by %q", names))
	s.setWaiting(v1alpha1.ReasonNotStarted, "the call was approved and is about to start")
	return s.ToolCallStatus
}

// endUnapproved ends a call that somebody refused, with the note, or that too few people approved in time.
func (o *observation) endUnapproved(denial *v1alpha1.ToolCallApproval) effects {
	request := o.call.Status.Approval
	reason, message := v1alpha1.ReasonApprovalExpired, fmt.Sprintf("%d of %d needed approvals came within %s: create the call again to ask again",
		len(request.ApprovedBy), request.Needed, request.ExpiresAt.Sub(request.RequestedAt.Time).Round(time.Second))
	if denial != nil {
		reason, message = v1alpha1.ReasonApprovalDenied, fmt.Sprintf("%q denied the call", approval.CountedOf(denial).Username)
		if denial.Spec.Note != "" {
			message += ": " + denial.Spec.Note
		}
	}
	status := o.end(v1alpha1.PhaseDenied, reason, message)
	if denial != nil {
		status.Approval.DeniedBy = ptr.To(approval.CountedOf(denial))
	}
	return effects{status: status, leaveQueue: true, leaveLine: o.session != nil}
}
