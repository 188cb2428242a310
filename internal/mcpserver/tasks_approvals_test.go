package mcpserver

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/approval"
)

// approves is the permission to decide about calls.
func approves() []rbacv1.PolicyRule {
	group := []string{v1alpha1.GroupVersion.Group}
	return []rbacv1.PolicyRule{
		{APIGroups: group, Resources: []string{"toolcalls"}, Verbs: []string{"get", "list", "watch", "approve"}},
		{APIGroups: group, Resources: []string{"toolcallapprovals"}, Verbs: []string{"get", "list", "watch", "create"}},
	}
}

// awaitPeople takes the place of the operator for calls that wait for people, by the operator's own rules.
func (f *fixture) awaitPeople(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
	if call.Spec.Cancel {
		return untilCancelled(call)
	}
	if call.Status.Approval == nil {
		status := &v1alpha1.ToolCallStatus{Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonAwaitingApproval, Message: "a person has to approve the call"}
		summary := `{"call":"` + call.Name + `"}`
		now := time.Now()
		status.Approval = &v1alpha1.ApprovalStatus{
			Summary: summary, Digest: approval.Digest(summary), Needed: 1, RequestedAt: metav1.NewMicroTime(now), ExpiresAt: metav1.NewMicroTime(now.Add(time.Hour)),
			Approvers: []string{"the owners"},
		}
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: v1alpha1.ConditionApproved, Status: metav1.ConditionUnknown, Reason: status.Reason})
		return status
	}
	list := &v1alpha1.ToolCallApprovalList{}
	if err := f.admin.List(context.Background(), list, client.InNamespace(f.namespace)); err != nil {
		return nil
	}
	switch tally := approval.Count(call, list.Items, time.Now()); {
	case tally.Denial != nil:
		return finishedStatus(v1alpha1.PhaseDenied, v1alpha1.ReasonApprovalDenied)
	case tally.IsApproved(call):
		return echo(call)
	}
	return nil
}

// decisions are those about the calls of the namespace.
func (f *fixture) decisions() []v1alpha1.ToolCallApproval {
	f.t.Helper()
	list := &v1alpha1.ToolCallApprovalList{}
	must(f.t, f.admin.List(f.t.Context(), list, client.InNamespace(f.namespace)))
	return list.Items
}

// Somebody else who may decide about a call is asked, and nobody but them. The answer is their decision about what they were shown.
func TestDecisionsAboutTasks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer fields
		want   v1alpha1.ApprovalDecision
		reason string
	}{
		"approved": {fields{"action": "accept", "content": fields{"confirm": true, "note": "fine"}}, v1alpha1.DecisionApprove, v1alpha1.ReasonCompleted},
		"denied":   {fields{"action": "accept", "content": fields{"confirm": false, "note": "fine"}}, v1alpha1.DecisionDeny, v1alpha1.ReasonApprovalDenied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTaskSite(t)
			s.operate(s.awaitPeople)
			agent, human := s.user("agent", runsCalls()), s.user("human", approves()...)
			made := s.command(agent, fields{"command": "x"})
			asked := s.awaitState(human, made.TaskID, "input_required")
			call := s.only("the one that waits", func(*v1alpha1.ToolCall) bool { return true })
			digest, key := call.Status.Approval.Digest, ""
			for at, request := range asked.InputRequests {
				key = at
				for _, part := range []string{"system:serviceaccount:" + s.namespace + ":agent", call.Name, `"call": "` + call.Name + `"`, digest} {
					if !strings.Contains(request.Params.Message, part) || request.Method != "elicitation/create" {
						t.Errorf("the question %+v doesn't say %q", request, part)
					}
				}
			}
			if got := s.awaitState(agent, made.TaskID, "working"); !strings.Contains(got.StatusMessage, "the owners") || len(got.InputRequests) > 0 {
				t.Errorf("whose call it is sees %+v", got)
			}
			if got, _ := s.rpc(human, "tasks/get", fields{"taskId": made.TaskID}, fields{"extensions": declares["extensions"]}); got.Status != "working" {
				t.Errorf("without forms: %+v", got)
			}
			s.ignoresOthers(agent, human, made.TaskID, key)
			for range 2 {
				if ack, code := s.rpc(human, "tasks/update", fields{"taskId": made.TaskID, "inputResponses": fields{key: test.answer}}, declares); code != 0 || ack.ResultType != "complete" {
					t.Fatalf("%+v, error %d", ack, code)
				}
			}
			if got, _ := s.rpc(human, "tasks/get", fields{"taskId": made.TaskID}, declares); got.Status != "working" {
				t.Errorf("after the answer: %+v", got)
			}
			got := s.decisions()
			if len(got) != 1 || got[0].Spec.Decision != test.want || got[0].Spec.Digest != digest || got[0].ApproverName() != "system:serviceaccount:"+s.namespace+":human" || got[0].Spec.Note != "fine" {
				t.Errorf("decisions: %+v", got)
			}
			s.touchCalls()
			if got := s.awaitState(agent, made.TaskID, "completed"); !strings.HasPrefix(got.StatusMessage, test.reason) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// ignoresOthers expects that nothing is decided by answers of those who aren't asked, to what isn't asked, or that aren't answers.
func (s *site) ignoresOthers(agent, human, task, key string) {
	s.t.Helper()
	yes := fields{"action": "accept", "content": fields{"confirm": true}}
	for name, test := range map[string]struct {
		token string
		given fields
		code  int
	}{
		"one's own call":     {agent, fields{key: yes}, 0},
		"another question":   {human, fields{"approval-0": yes, "": nil}, 0},
		"closed":             {human, fields{key: fields{"action": "cancel"}}, 0},
		"no decision":        {human, fields{key: fields{"action": "accept", "content": fields{}}}, -32602},
		"another type":       {human, fields{key: fields{"action": "accept", "content": fields{"confirm": "yes"}}}, -32602},
		"another action":     {human, fields{key: fields{"action": "approve"}}, -32602},
		"no form":            {human, fields{key: 7}, -32602},
		"too long a note":    {human, fields{key: fields{"action": "decline", "content": fields{"note": strings.Repeat("ü", 1025)}}}, -32602},
		"nothing is ignored": {human, nil, 0},
	} {
		if _, code := s.rpc(test.token, "tasks/update", fields{"taskId": task, "inputResponses": test.given}, declares); code != test.code {
			s.t.Errorf("%s: error %d, want %d", name, code, test.code)
		}
	}
	if got := s.decisions(); len(got) > 0 {
		s.t.Errorf("decisions: %+v", got)
	}
}

// No denial is lost: not where somebody else took the name of the decision, not where the same user approved before, and who may not decide
// is told so.
func TestNoDenialIsLost(t *testing.T) {
	t.Parallel()
	s := newTaskSite(t)
	s.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if call.Status.Approval != nil && !call.Spec.Cancel {
			return nil
		}
		return s.awaitPeople(call)
	})
	agent, human, other := s.user("agent", runsCalls()), s.user("human", approves()...), s.user("other", runsCalls())
	made := s.command(agent, fields{"command": "x"})
	key := ""
	for asked := range s.awaitState(human, made.TaskID, "input_required").InputRequests {
		key = asked
	}
	call := s.only("the one that waits", func(*v1alpha1.ToolCall) bool { return true })
	name := "system:serviceaccount:" + s.namespace + ":human"
	sum := sha256.Sum256(fmt.Appendf(nil, "[%q,%q,%q,%q]", name, "", call.UID, call.Status.Approval.Digest))
	taken := &v1alpha1.ToolCallApproval{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprintf("%s-%x", call.Name, sum[:16])}}
	taken.Spec = v1alpha1.ToolCallApprovalSpec{
		CallRef: v1alpha1.CallReference{Name: call.Name, UID: string(call.UID)}, Digest: call.Status.Approval.Digest, Decision: v1alpha1.DecisionApprove,
	}
	answer := func(token, action string, want int) {
		t.Helper()
		given := fields{key: fields{"action": action, "content": fields{"confirm": true}}}
		if _, code := s.rpc(token, "tasks/update", fields{"taskId": made.TaskID, "inputResponses": given}, declares); code != want {
			t.Errorf("%s: error %d, want %d", action, code, want)
		}
	}
	answer(other, "decline", -32603)
	must(t, s.admin.Create(t.Context(), taken))
	s.awaitState(human, made.TaskID, "input_required")
	answer(human, "accept", 0)
	answer(human, "decline", 0)
	var own []v1alpha1.ApprovalDecision
	for _, d := range s.decisions() {
		if d.ApproverName() == name && d.GenerateName == taken.Name+"-" {
			own = append(own, d.Spec.Decision)
		}
	}
	slices.Sort(own)
	if !slices.Equal(own, []v1alpha1.ApprovalDecision{v1alpha1.DecisionApprove, v1alpha1.DecisionDeny}) {
		t.Errorf("the user's decisions are %v", own)
	}
}
