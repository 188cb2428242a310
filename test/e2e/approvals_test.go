package e2e

import (
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// gitNeedsApproval has a person decide about each call that names git.
func gitNeedsApproval(expires time.Duration) func(*v1alpha1.ExecutionPolicySpec) {
	return func(p *v1alpha1.ExecutionPolicySpec) {
		p.Approvals = []v1alpha1.ApprovalRequirement{{
			Name: "git", Match: v1alpha1.ApprovalMatch{Tools: []string{"git"}}, ExpiresSeconds: ptr.To(int32(expires.Seconds())),
		}}
	}
}

func (sp *space) awaitAsked(t *testing.T, call *v1alpha1.ToolCall) *v1alpha1.ToolCall {
	t.Helper()
	return sp.awaitCall(t, call, "a person is asked", (*v1alpha1.ToolCall).AwaitsApproval)
}

// An agent asks to push, a person sees what will run and approves, and the push happens once. Another push is denied with a note.
func TestAPushThatAPersonApproves(t *testing.T) {
	t.Parallel()
	sp := newSpace(t, gitNeedsApproval(10*time.Minute))
	maintainer := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "maintainer-" + sp.namespace}
	sp.bind(t, "approver", rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "toolcall-approver"}, maintainer)
	session := sp.startSession(t, "dev")
	const prepare = `set -e; git init -q --bare origin.git; git clone -q origin.git repo 2>/dev/null; cd repo; echo hello >file; git add file
git -c user.name=a -c user.email=a@example.com commit -qm one`
	expect(t, sp.run(t, inside(session, shell(prepare))), succeeded(""))

	push := sp.awaitAsked(t, sp.create(t, inside(session, structured("git", "-C", "repo", "push", "-q", "origin", "HEAD"))))
	if pods, err := sp.sessionPods(t.Context(), session); err != nil || len(pods) != 1 || push.Status.Approval.Needed != 1 {
		t.Errorf("%v, %d pods, %+v", err, len(pods), push.Status.Approval)
	}
	if own := sp.plugin(t, "y\n", "approve", push.Name); own.code != 1 || !strings.Contains(own.err, v1alpha1.ReasonOwnCall) {
		t.Errorf("the caller approves: %+v", own)
	}
	if listed := sp.plugin(t, "", "approvals", "--as", maintainer.Name); !strings.Contains(listed.out, push.Name) {
		t.Errorf("the list is %+v", listed)
	}
	approved := sp.plugin(t, "y\n", "approve", push.Name, "--as", maintainer.Name)
	if approved.code != 0 || !strings.Contains(approved.out, "Asked for:") || !strings.HasSuffix(approved.out, push.Name+" approved\n") {
		t.Fatalf("approve: %+v", approved)
	}
	if ended := sp.awaitFinished(t, push); ended.Status.Phase != v1alpha1.PhaseSucceeded || len(ended.Status.Approval.ApprovedBy) != 1 {
		t.Fatalf("%s: %s %s", ended.Status.Reason, ended.Status.Message, ended.Status.Stderr)
	}
	expect(t, sp.run(t, inside(session, shell("git -C origin.git log --format=%s --all"))), succeeded("one\n"))

	again := sp.awaitAsked(t, sp.create(t, inside(session, structured("git", "-C", "repo", "push", "-q", "--force", "origin", "HEAD"))))
	denial := sp.plugin(t, "y\n", "approve", again.Name, "--as", maintainer.Name, "--deny", "--note", "push without --force")
	if denial.code != 0 || !strings.Contains(denial.out, "Difference to the last call that you approved:") {
		t.Errorf("deny: %+v", denial)
	}
	ended := sp.awaitFinished(t, again)
	expect(t, ended, denied(v1alpha1.ReasonApprovalDenied))
	expectMessage(t, ended, maintainer.Name, "push without --force")
}

func TestACallThatNobodyApproves(t *testing.T) {
	t.Parallel()
	sp := newSpace(t, gitNeedsApproval(time.Second))
	call := sp.run(t, structured("git", "--version"))
	expect(t, call, denied(v1alpha1.ReasonApprovalExpired))
	if jobs := sp.jobs(t, call); len(jobs) != 0 {
		t.Errorf("%d Jobs were made for it", len(jobs))
	}
}
