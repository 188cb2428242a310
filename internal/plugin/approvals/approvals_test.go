package approvals

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/approval"
	"toolcall.dev/operator/internal/plugin/calls"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestMain(m *testing.M) { os.Exit(plugintest.Main(m, withCalls)) }

func withCalls(c *cli.CLI) []*cobra.Command { return slices.Concat(Commands(c), calls.Commands(c)) }

// awaiting makes a call that waits for a decision.
func awaiting(f *plugintest.Fixture, name, command string) *v1alpha1.ToolCall {
	f.T.Helper()
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: name}}
	call.Spec.Shell = &v1alpha1.ShellAction{Command: command}
	f.Make(call)
	now := metav1.NowMicro()
	summary := `{"action":{"Command":"` + command + `"},"call":{"name":"` + name + `"},"requestedAt":"` + name + `"}`
	call.Status = v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonAwaitingApproval,
		Action: &v1alpha1.MappedAction{Type: v1alpha1.ActionShell, Tool: "bash", Summary: command},
		Approval: &v1alpha1.ApprovalStatus{
			Summary: summary, Digest: approval.Digest(summary), Needed: 1, Causes: []string{"people"}, RequestedAt: now, ExpiresAt: metav1.NewMicroTime(now.Add(time.Hour)),
		},
	}
	meta.SetStatusCondition(&call.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionApproved, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonAwaitingApproval})
	if err := f.Client.Status().Update(f.T.Context(), call); err != nil {
		f.T.Fatal(err)
	}
	return call
}

// judge says what the operator would of each decision.
func judge(f *plugintest.Fixture, phase v1alpha1.ApprovalPhase, reason string) {
	f.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	f.T.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			list := &v1alpha1.ToolCallApprovalList{}
			if f.Client.List(ctx, list, client.InNamespace(f.Namespace)) != nil {
				continue
			}
			for i := range list.Items {
				a := &list.Items[i]
				a.Status.Phase = phase
				meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: reason, Message: "why"})
				_ = f.Client.Status().Update(ctx, a)
			}
		}
	}()
}

func run(f *plugintest.Fixture, stdin string, args ...string) plugintest.Printed {
	f.T.Helper()
	out, errs, code := plugintest.Run(stdin, append([]string{"--kubeconfig", f.Kubeconfig, "-n", f.Namespace}, args...)...)
	return plugintest.Printed{Out: out, Err: errs, Code: code}
}

func decisions(f *plugintest.Fixture) []v1alpha1.ToolCallApproval {
	f.T.Helper()
	list := &v1alpha1.ToolCallApprovalList{}
	if err := f.Client.List(f.T.Context(), list, client.InNamespace(f.Namespace)); err != nil {
		f.T.Fatal(err)
	}
	return list.Items
}

func TestAPersonApproves(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	judge(f, v1alpha1.ApprovalAccepted, v1alpha1.ReasonDecisionCounts)
	first := awaiting(f, "first", "git push")
	run(f, "n\n", "approve", "first").Expect(t, 1, "Asked for: shell: command: git push", "isn't part of this", "Approve call first? [y/N]", "nothing was decided")
	run(f, "", "approve", "first").Expect(t, 1, "nothing was decided")
	if n := len(decisions(f)); n != 0 {
		t.Fatalf("%d decisions were made", n)
	}
	run(f, "y\n", "approve", "first", "--note", "go").Expect(t, 0, "toolcall.toolcall.dev/first approved", "You approved no call of this session")
	made := decisions(f)[0].Spec
	if made.CallRef != (v1alpha1.CallReference{Name: "first", UID: string(first.UID)}) || made.Digest != first.Status.Approval.Digest || made.Decision != v1alpha1.DecisionApprove || made.Note != "go" {
		t.Errorf("made %+v", made)
	}
	awaiting(f, "second", "git push --force")
	run(f, "yes\n", "approve", "second", "--deny").Expect(t, 0, "Difference to the last call that you approved:", `- "Command": "git push"`, `+ "Command": "git push --force"`, "second denied")
	awaiting(f, "third", "git push")
	run(f, "y\n", "approve", "third").Expect(t, 0, "It does what call first did, which you approved.")
}

func TestAScriptApprovesWhatItChecked(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	judge(f, v1alpha1.ApprovalRejected, v1alpha1.ReasonOwnCall)
	call := awaiting(f, "c", "make")
	run(f, "", "approve", "c", "--yes").Expect(t, 1, "--yes needs --digest")
	run(f, "y\n", "approve", "c", "--digest", "").Expect(t, 1, "--digest is empty")
	run(f, "", "approve", "c", "--yes", "--digest", "sha256:0").Expect(t, 1, "something else than --digest")
	run(f, "", "approve", "c", "--note", strings.Repeat("x", 1025)).Expect(t, 1, "at most 1024")
	run(f, "", "approve", "c", "--yes", "--digest", call.Status.Approval.Digest).Expect(t, 1, "the decision doesn't count: OwnCall: why")
}

func TestWhatCannotBeApproved(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	run(f, "y\n", "approve", "none").Expect(t, 1, "not found")
	f.Make(&v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "plain"}, Spec: v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "x"}}})
	run(f, "y\n", "approve", "plain").Expect(t, 1, "doesn't wait for approval")
	forged := awaiting(f, "forged", "x")
	forged.Status.Approval.Summary = `{"action":{}}`
	if err := f.Client.Status().Update(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	run(f, "y\n", "approve", "forged").Expect(t, 1, "doesn't have the digest that its status says")
	if n := len(decisions(f)); n != 0 {
		t.Errorf("%d decisions were made", n)
	}
	nobody := f.As(f.User(nil, "ls"))
	nobody("approvals").Expect(t, 1, "toolcall-approver")
	nobody("approve", "forged").Expect(t, 1, "forbidden")
}

func TestWhatWaits(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	run(f, "", "approvals").Expect(t, 0, "No calls wait for approval in namespace "+f.Namespace+".")
	awaiting(f, "c", "git push")
	run(f, "", "approvals").Expect(t, 0, "NAME REQUESTED-BY ACTION APPROVED WAITS EXPIRES-IN", "git push 0/1")
	run(f, "", "approvals", "-o", "name").Expect(t, 0, "toolcall.toolcall.dev/c")
	run(f, "", "describe", "c").Expect(t, 0, "Approval: Because of: people Needed: 1", "Approved: Unknown (AwaitingApproval)")
}

func TestControlCharactersAreShown(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	now := metav1.NowMicro()
	call := v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: types.UID("u")}}
	call.Status.Action = &v1alpha1.MappedAction{Summary: "a\x1b[2Jb\u202ec"}
	call.Status.Approval = &v1alpha1.ApprovalStatus{Needed: 2, RequestedAt: now, ExpiresAt: now}
	if err := writeTable(&out, []v1alpha1.ToolCall{call}, false, now.Time); err != nil || !strings.Contains(out.String(), "a^[[2Jb<U+202E>c") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestALongActionIsInShortBesideTheQuestion(t *testing.T) {
	t.Parallel()
	call := &v1alpha1.ToolCall{}
	call.Spec.RequestedBy = &v1alpha1.Requester{Username: "alice\x1b"}
	call.Spec.Shell = &v1alpha1.ShellAction{Command: "git\tpush\u200d\x1b[2J\n" + strings.Repeat("#\n", 500)}
	asked, err := approval.AskedFor(&call.Spec)
	if err != nil {
		t.Fatal(err)
	}
	got := inShort(call, asked)
	for _, part := range []string{"alice^[ asks for: git push<U+200D>^[[2J # #", "lines and", "Read all of it above."} {
		if !strings.Contains(got, part) {
			t.Errorf("%q lacks %q", got, part)
		}
	}
	call.Spec.Shell.Command = "ls"
	if got := inShort(call, "shell:\n  command: ls\n"); got != "\nalice^[ asks for: ls\n" {
		t.Errorf("got %q", got)
	}
}
