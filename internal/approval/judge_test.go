package approval_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/approval"
)

// waiting is a call of alice that waits for so many approvals.
func waiting(needed int32, counted ...string) *v1alpha1.ToolCall {
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Name: "call", UID: "call-uid"}}
	call.Spec.RequestedBy = &v1alpha1.Requester{Username: "alice"}
	call.Status.Approval = &v1alpha1.ApprovalStatus{
		Digest: "digest", Needed: needed, RequestedAt: metav1.NewMicroTime(asked), ExpiresAt: metav1.NewMicroTime(asked.Add(time.Minute)),
	}
	for _, name := range counted {
		call.Status.Approval.ApprovedBy = append(call.Status.Approval.ApprovedBy, v1alpha1.CountedApproval{Name: "before", UID: "before-" + name, Username: name})
	}
	return call
}

func decision(who string, what v1alpha1.ApprovalDecision, change ...func(*v1alpha1.ToolCallApproval)) v1alpha1.ToolCallApproval {
	a := v1alpha1.ToolCallApproval{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: types.UID(fmt.Sprint(who, what)), CreationTimestamp: metav1.NewTime(asked)}}
	a.Spec = v1alpha1.ToolCallApprovalSpec{
		CallRef: v1alpha1.CallReference{Name: "call", UID: "call-uid"}, Digest: "digest", Decision: what, Approver: &v1alpha1.Requester{Username: who},
	}
	for _, c := range change {
		c(&a)
	}
	return a
}

// made says how long after the question a decision was made.
func made(after time.Duration) func(*v1alpha1.ToolCallApproval) {
	return func(a *v1alpha1.ToolCallApproval) { a.CreationTimestamp = metav1.NewTime(asked.Add(after)) }
}

func TestWhichDecisionsCount(t *testing.T) {
	t.Parallel()
	const approve, deny = v1alpha1.DecisionApprove, v1alpha1.DecisionDeny
	for name, tc := range map[string]struct {
		decision v1alpha1.ToolCallApproval
		counted  []string
		after    time.Duration
		want     string
	}{
		"somebody else approves":                {decision: decision("bob", approve)},
		"somebody else denies":                  {decision: decision("bob", deny)},
		"one's own approval":                    {decision: decision("alice", approve), want: v1alpha1.ReasonOwnCall},
		"one's own denial":                      {decision: decision("alice", deny)},
		"nobody's":                              {decision: decision("", approve), want: v1alpha1.ReasonApproverUnknown},
		"of another digest":                     {decision: decision("bob", approve, func(a *v1alpha1.ToolCallApproval) { a.Spec.Digest = "other" }), want: v1alpha1.ReasonWrongDigest},
		"a denial of another digest":            {decision: decision("bob", deny, func(a *v1alpha1.ToolCallApproval) { a.Spec.Digest = "other" }), want: v1alpha1.ReasonWrongDigest},
		"for another call of the name":          {decision: decision("bob", approve, func(a *v1alpha1.ToolCallApproval) { a.Spec.CallRef.UID = "other" }), want: v1alpha1.ReasonWrongDigest},
		"at the last moment":                    {decision: decision("bob", approve, made(time.Minute-time.Nanosecond)), after: time.Minute - time.Nanosecond},
		"in time, and counted late":             {decision: decision("bob", approve, made(59*time.Second)), after: time.Hour},
		"a denial in time, and counted late":    {decision: decision("bob", deny, made(59*time.Second)), after: time.Hour},
		"when the time is up":                   {decision: decision("bob", approve, made(time.Minute)), after: time.Minute, want: v1alpha1.ReasonApprovalExpired},
		"late, and counted later":               {decision: decision("bob", approve, made(2*time.Minute)), after: time.Hour, want: v1alpha1.ReasonApprovalExpired},
		"by a clock that is ahead":              {decision: decision("bob", approve, made(time.Hour)), after: time.Second},
		"a second approval of the same person":  {decision: decision("bob", approve), counted: []string{"bob"}, want: v1alpha1.ReasonDuplicateDecision},
		"a denial of somebody who had approved": {decision: decision("bob", deny), counted: []string{"bob"}},
		"a second approval of another":          {decision: decision("carol", approve), counted: []string{"bob"}},
	} {
		call := waiting(2, tc.counted...)
		why := approval.Reject(call, &tc.decision, call.Status.Approval.ApprovedBy, asked.Add(tc.after))
		switch {
		case why == nil && tc.want != "", why != nil && (why.Reason != tc.want || why.Message == ""):
			t.Errorf("%s: %+v, want %q", name, why, tc.want)
		}
	}
	call := waiting(1)
	call.Status.Approval = nil
	a := decision("bob", approve)
	if why := approval.Reject(call, &a, nil, asked); why == nil || why.Reason != v1alpha1.ReasonApprovalNotNeeded {
		t.Errorf("a call that waits for nothing: %+v", why)
	}
}

func TestCounting(t *testing.T) {
	t.Parallel()
	const approve, deny = v1alpha1.DecisionApprove, v1alpha1.DecisionDeny
	for name, tc := range map[string]struct {
		call       *v1alpha1.ToolCall
		decisions  []v1alpha1.ToolCallApproval
		approvedBy int
		approved   bool
		deniedBy   string
	}{
		"nobody":                            {call: waiting(1)},
		"one of one":                        {call: waiting(1), decisions: []v1alpha1.ToolCallApproval{decision("bob", approve)}, approvedBy: 1, approved: true},
		"two of one":                        {call: waiting(1), decisions: []v1alpha1.ToolCallApproval{decision("bob", approve), decision("carol", approve)}, approvedBy: 1, approved: true},
		"one of two":                        {call: waiting(2), decisions: []v1alpha1.ToolCallApproval{decision("bob", approve)}, approvedBy: 1},
		"the same twice":                    {call: waiting(2), decisions: []v1alpha1.ToolCallApproval{decision("bob", approve), decision("bob", approve)}, approvedBy: 1},
		"two of two":                        {call: waiting(2), decisions: []v1alpha1.ToolCallApproval{decision("bob", approve), decision("carol", approve)}, approvedBy: 2, approved: true},
		"a second one later":                {call: waiting(2, "bob"), decisions: []v1alpha1.ToolCallApproval{decision("carol", approve)}, approvedBy: 2, approved: true},
		"an approval and a denial at once":  {call: waiting(1), decisions: []v1alpha1.ToolCallApproval{decision("bob", approve), decision("carol", deny)}, approvedBy: 1, deniedBy: "carol"},
		"a denial and an approval at once":  {call: waiting(1), decisions: []v1alpha1.ToolCallApproval{decision("a", deny), decision("bob", approve)}, deniedBy: "a"},
		"one's own approval beside another": {call: waiting(2), decisions: []v1alpha1.ToolCallApproval{decision("alice", approve), decision("bob", approve)}, approvedBy: 1},
	} {
		tally := approval.Count(tc.call, tc.decisions, asked)
		deniedBy := ""
		if tally.Denial != nil {
			deniedBy = tally.Denial.ApproverName()
		}
		if len(tally.ApprovedBy) != tc.approvedBy || tally.IsApproved(tc.call) != tc.approved || deniedBy != tc.deniedBy {
			t.Errorf("%s: %d approved, enough: %t, denied by %q", name, len(tally.ApprovedBy), tally.IsApproved(tc.call), deniedBy)
		}
	}
}
