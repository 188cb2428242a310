package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

const secret = "swordfish"

func endedCall() *v1alpha1.ToolCall {
	now := metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	return &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "uid", CreationTimestamp: now},
		Spec: v1alpha1.ToolCallSpec{
			RequestedBy: &v1alpha1.Requester{Username: "alice", UID: "1", Groups: []string{"team"}},
			Structured:  &v1alpha1.StructuredAction{Binary: "curl", Args: []string{"<" + secret + ">"}},
			SessionRef:  &v1alpha1.SessionReference{Name: "s"},
			Env:         []v1alpha1.CallEnvVar{{Name: "X", Value: secret}},
		},
		Status: v1alpha1.ToolCallStatus{
			Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonNonZeroExit, Message: secret, ExitCode: new(int32(3)), Stdout: secret, Output: secret,
			Action:      &v1alpha1.MappedAction{Type: v1alpha1.ActionStructured, Tool: "curl", Summary: "curl " + secret},
			Environment: &v1alpha1.ResolvedEnvironment{Name: "env", WorkingDir: "/workspace"}, Pod: "p", Node: "node",
			Streams: &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: 9, SHA256: "abc"}},
			Usage:   &v1alpha1.CallUsage{CPUMilliseconds: new(int64(12))},
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, LastTransitionTime: now},
				{Type: v1alpha1.ConditionFinished, Status: metav1.ConditionTrue, LastTransitionTime: now},
			},
		},
	}
}

func TestARecordSaysWhoDidWhatWhere(t *testing.T) {
	t.Parallel()
	call := endedCall()
	r := OfCall(call, About{Image: "image"})
	sum := sha256.Sum256([]byte(`{"structured":{"args":["<` + secret + `>"],"binary":"curl"}}`))
	switch {
	case r.Who.Username != "alice" || r.What.Binary != "curl" || r.What.Tool != "curl" || r.What.SHA256 != hex.EncodeToString(sum[:]):
		t.Errorf("who and what: %+v, %+v", r.Who, r.What)
	case *r.Where != Where{Environment: "env", Image: "image", Session: "s", Pod: "p", Node: "node", WorkingDir: "/workspace"}:
		t.Errorf("where: %+v", r.Where)
	case !r.Decision.Allowed || r.Outcome.Phase != "Failed" || *r.Outcome.ExitCode != 3 || r.Streams.Stdout.SHA256 != "abc" || *r.Usage.CPUMilliseconds != 12:
		t.Errorf("outcome: %+v, %+v, %+v, %+v", r.Decision, r.Outcome, r.Streams, r.Usage)
	case r.Times.Ended == nil || r.Outcome.Deleted:
		t.Errorf("times: %+v", r.Times)
	}
}

// What a call was given and wrote is in its record only where the policy says so, and its output never is.
func TestArgumentsAreLeftOutUnlessThePolicySaysOtherwise(t *testing.T) {
	t.Parallel()
	call := endedCall()
	denied := endedCall()
	denied.Status.Phase, denied.Status.Conditions[0].Status, denied.Status.Conditions[0].Message = v1alpha1.PhaseDenied, metav1.ConditionFalse, secret
	for _, c := range []*v1alpha1.ToolCall{call, denied} {
		r := OfCall(c, About{})
		if line := r.line(); strings.Contains(string(line), secret) {
			t.Errorf("got %s", line)
		}
	}
	r := OfCall(call, About{WithArguments: true})
	var action v1alpha1.ToolCallSpec
	if err := json.Unmarshal([]byte(r.What.Arguments), &action); err != nil || action.Structured.Args[0] != "<"+secret+">" || action.Env != nil || r.Outcome.Message != secret {
		t.Errorf("%v: %+v", err, r.What)
	}
	if r := OfCall(denied, About{WithArguments: true}); r.Decision.Allowed || r.Decision.Message != secret {
		t.Errorf("got %+v", r.Decision)
	}
}

// The name of the rule that denied a call is the policy's. What follows it in the message can be the call's.
func TestARecordNamesTheRuleThatDenied(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{v1alpha1.ReasonDeniedByRule, v1alpha1.ReasonGuardError} {
		call := endedCall()
		call.Status.Conditions[0].Status, call.Status.Conditions[0].Reason = metav1.ConditionFalse, reason
		call.Status.Conditions[0].Message = `The policy's rule "no-push" can't say more than "` + secret + `"`
		if r := OfCall(call, About{}); r.Decision.Rule != "spec.rules: no-push" || strings.Contains(string(r.line()), secret) {
			t.Errorf("got %s", r.line())
		}
	}
}

func TestARequesterWhomNobodyVouchesForIsUnverified(t *testing.T) {
	t.Parallel()
	for _, isVouched := range []bool{true, false} {
		if r := OfCall(endedCall(), About{IsVouched: isVouched}); r.Who.Unverified == isVouched {
			t.Errorf("vouched for: %t: %+v", isVouched, r.Who)
		}
	}
}

func TestWhatWasDeletedBeforeItsEndSaysSo(t *testing.T) {
	t.Parallel()
	call := endedCall()
	call.Status = v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning}
	if r := OfCall(call, About{IsDeleted: true}); !r.Outcome.Deleted || r.Outcome.Phase != "Running" || r.Decision != nil {
		t.Errorf("got %+v", r.Outcome)
	}
	if r := OfCall(endedCall(), About{IsDeleted: true}); r.Outcome.Deleted {
		t.Error("a call that had ended is said to have been deleted before")
	}
	session := &v1alpha1.ToolSession{Status: v1alpha1.ToolSessionStatus{Phase: v1alpha1.SessionReady}}
	if r := OfSession(session, About{IsDeleted: true}); !r.Outcome.Deleted {
		t.Errorf("got %+v", r.Outcome)
	}
}

// The record of a call names those whose decisions counted, and each decision has a record of its own.
func TestDecisionsOfPeopleAreRecorded(t *testing.T) {
	t.Parallel()
	call := endedCall()
	call.Status.Conditions[0] = metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonBinaryNotAllowed}
	call.Status.Approval = &v1alpha1.ApprovalStatus{
		ApprovedBy: []v1alpha1.CountedApproval{{Username: "bob"}}, DeniedBy: &v1alpha1.CountedApproval{Username: "carol"},
	}
	r := OfCall(call, About{})
	if diff := cmp.Diff([]Approval{{"bob", "Approve"}, {"carol", "Deny"}}, r.Approvals); diff != "" {
		t.Error(diff)
	}
	if r.Decision.Rule != "spec.binaries" {
		t.Errorf("got %+v", r.Decision)
	}
	decision := &v1alpha1.ToolCallApproval{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a-1", UID: "decision"}}
	decision.Spec = v1alpha1.ToolCallApprovalSpec{
		CallRef: v1alpha1.CallReference{Name: "c", UID: "uid"}, Digest: "sha256:00ff", Decision: v1alpha1.DecisionDeny, Note: secret,
		Approver: &v1alpha1.Requester{Username: "carol"},
	}
	decision.Status.Phase = v1alpha1.ApprovalAccepted
	r = OfApproval(decision, About{})
	if r.ID != "approval/decision" || r.Name != "c" || r.UID != "uid" || r.Who.Username != "carol" || *r.What != (What{Type: "Deny", SHA256: "00ff"}) || r.Outcome.Phase != "Accepted" {
		t.Errorf("got %+v, %+v, %+v, %+v", r, r.Who, r.What, r.Outcome)
	}
	if line := r.line(); strings.Contains(string(line), secret) {
		t.Errorf("got %s", line)
	}
}
