package environments

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// The last line says whether the same call would be allowed now.
func TestExplainDenialSaysWhatWouldHappenNow(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) { p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls"}} })
	f.Environment("tools", true)
	f.Deny("same", v1alpha1.ReasonBinaryNotAllowed, "--", "git", "status")
	f.Deny("other", v1alpha1.ReasonShellDisabled, "--", "git")
	f.Deny("allowed", v1alpha1.ReasonBinaryNotAllowed, "--", "ls")
	f.Deny("fails", v1alpha1.ReasonBinaryNotAllowed, "--environment", "gone", "--", "ls")
	for name, want := range map[string]string{
		"same":    "Now: the same call from you would be denied for the same reason",
		"other":   "Now: the same call from you would be denied: BinaryNotAllowed:",
		"allowed": "Now: the same call from you would be allowed",
		"fails":   "Now: the same call from you would fail: EnvironmentNotFound:",
	} {
		f.Run("explain-denial", name).Expect(t, 0, "Call: "+name, "Requested by: admin", "Action: summary of "+name, "Message: message of ", want)
	}
	f.Run("explain-denial", "same").Expect(t, 0, "Rule: spec.binaries", "You can: use a listed program", "The policy's owner can: add the program to spec.binaries.allowed",
		"Documentation: docs/troubleshooting.md#binarynotallowed", "Policy: "+f.Namespace+", of environment tools")
	user := f.User([]string{"toolcall-user"}, "ls")
	f.As(user)("explain-denial", "same").Expect(t, 0, "Now: the same call from you would be denied: AgentNotAllowed:")
	// Whoever may impersonate the requester learns what would become of the requester's call.
	f.As(user)("run", "--detach", "--name", "theirs", "--", "ls").Expect(t, 0, "theirs")
	f.End("theirs", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: v1alpha1.ReasonShellDisabled, Message: "no"})
	f.Run("explain-denial", "theirs").Expect(t, 0, "Now: the same call from "+user+" would be allowed")
}

// The call is never created again.
func TestExplainDenialCreatesNothing(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy()
	f.Environment("tools", true)
	f.Deny("c", v1alpha1.ReasonShellDisabled, "--shell", "ls", "-e", "A=1")
	f.Run("cancel", "c").Expect(t, 0)
	f.Run("explain-denial", "c").Expect(t, 0, "would be allowed")
	list := &v1alpha1.ToolCallList{}
	if err := f.Client.List(t.Context(), list, client.InNamespace(f.Namespace)); err != nil || len(list.Items) != 1 {
		t.Errorf("%d calls, %v", len(list.Items), err)
	}
}

func TestExplainDenialOfOtherCalls(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("new")
	f.Detached("good")
	f.End("good", plugintest.Succeeded())
	f.Run("explain-denial", "new").Expect(t, 1, "call new was not denied, its phase is Pending")
	f.Run("explain-denial", "good").Expect(t, 1, "call good was not denied, its phase is Succeeded: kubectl toolcall describe good shows the details")
	f.Run("explain-denial", "none").Expect(t, 1, "call none not found")
}

// A reason without a rule, for example of a newer operator, is explained with the texts of the call.
func TestExplainDenialOfAnUnknownReason(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Deny("c", "FromTheFuture", "--", "ls")
	got := f.Run("explain-denial", "c")
	got.Expect(t, 0, "Reason: FromTheFuture", "Message: message of FromTheFuture")
	if strings.Contains(got.Out, "Rule:") || strings.Contains(got.Out, "You can:") {
		t.Errorf("a rule was invented: %s", got.Out)
	}
}
