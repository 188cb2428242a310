package api_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

func newApproval(namespace, call string) *v1alpha1.ToolCallApproval {
	return &v1alpha1.ToolCallApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "a-"},
		Spec: v1alpha1.ToolCallApprovalSpec{
			CallRef: v1alpha1.CallReference{Name: call, UID: "uid"}, Digest: "sha256:" + strings.Repeat("0", 64), Decision: v1alpha1.DecisionApprove,
		},
	}
}

// approver may decide about the call "mine", and about no other.
func (s *space) approver(name string) {
	s.t.Helper()
	s.grant(name, "toolcallapprovals", "create", "get", "update", "patch", "delete")
	s.run("create", "role", "approves-"+name, "--verb=approve", "--resource=toolcalls.toolcall.dev", "--resource-name=mine")
	s.run("create", "rolebinding", "approves-"+name, "--role=approves-"+name, "--user="+name)
}

func TestWhoDecidesIsWhoTheRequestIsFrom(t *testing.T) {
	s := newSpace(t)
	s.needsStamp()
	s.approver("alice")
	alice := s.as("alice", asUser{uid: "a-1", groups: []string{"people"}})
	want := &v1alpha1.Requester{Username: "alice", UID: "a-1", Groups: []string{"people", "system:authenticated"}}
	for name, written := range map[string]*v1alpha1.Requester{
		"nothing": nil, "the truth": want.DeepCopy(), "another": {Username: "admin"}, "a group": {Username: "alice", Groups: []string{"system:masters"}},
	} {
		a := newApproval(s.namespace, "mine")
		a.Spec.Approver = written
		if err := alice.Create(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, a.Spec.Approver, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestADecisionNeedsTheVerbApproveOnItsCall(t *testing.T) {
	s := newSpace(t)
	s.approver("alice")
	s.grant("mallory", "toolcallapprovals", "create")
	s.grant("mallory", "toolcalls", "create", "get", "update", "delete")
	for name, tc := range map[string]struct{ who, call, want string }{
		"the call that it is about":  {"alice", "mine", ""},
		"another call":               {"alice", "other", `you may not decide about the ToolCall "other"`},
		"all rights but that":        {"mallory", "mine", `have the verb "approve"`},
		"no right to make decisions": {"nobody", "mine", "forbidden"},
	} {
		err := s.as(tc.who, asUser{}).Create(t.Context(), newApproval(s.namespace, tc.call))
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestADecisionNeverChanges(t *testing.T) {
	s := newSpace(t)
	s.approver("alice")
	alice := s.as("alice", asUser{})
	a := newApproval(s.namespace, "mine")
	if err := alice.Create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*v1alpha1.ToolCallApprovalSpec){
		"decision": func(s *v1alpha1.ToolCallApprovalSpec) { s.Decision = v1alpha1.DecisionDeny },
		"digest":   func(s *v1alpha1.ToolCallApprovalSpec) { s.Digest = "sha256:" + strings.Repeat("1", 64) },
		"callRef":  func(s *v1alpha1.ToolCallApprovalSpec) { s.CallRef.UID = "other" },
		"note":     func(s *v1alpha1.ToolCallApprovalSpec) { s.Note = "x" },
		"approver": func(s *v1alpha1.ToolCallApprovalSpec) { s.Approver = &v1alpha1.Requester{Username: "bob"} },
	} {
		changed := a.DeepCopy()
		change(&changed.Spec)
		if err := s.admin.Update(t.Context(), changed); err == nil || !strings.Contains(err.Error(), "spec is immutable") {
			t.Errorf("%s: %v", name, err)
		}
	}
	labelled := a.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	if err := s.admin.Patch(t.Context(), labelled, client.MergeFrom(a)); err != nil {
		t.Errorf("its labels can't change: %v", err)
	}
	accepted := a.DeepCopy()
	accepted.Status.Phase = v1alpha1.ApprovalAccepted
	if err := alice.Status().Patch(t.Context(), accepted, client.MergeFrom(a)); err == nil {
		t.Error("an approver says that the decision counts")
	}
}

func TestWhatADecisionCannotBe(t *testing.T) {
	s := newSpace(t)
	for name, change := range map[string]func(*v1alpha1.ToolCallApprovalSpec){
		"no digest":        func(s *v1alpha1.ToolCallApprovalSpec) { s.Digest = "" },
		"another digest":   func(s *v1alpha1.ToolCallApprovalSpec) { s.Digest = "md5:0" },
		"no call":          func(s *v1alpha1.ToolCallApprovalSpec) { s.CallRef.Name = "" },
		"no uid":           func(s *v1alpha1.ToolCallApprovalSpec) { s.CallRef.UID = "" },
		"no decision":      func(s *v1alpha1.ToolCallApprovalSpec) { s.Decision = "" },
		"another decision": func(s *v1alpha1.ToolCallApprovalSpec) { s.Decision = "Maybe" },
		"a long note":      func(s *v1alpha1.ToolCallApprovalSpec) { s.Note = strings.Repeat("x", 1025) },
	} {
		a := newApproval(s.namespace, "mine")
		change(&a.Spec)
		if err := s.admin.Create(t.Context(), a); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
