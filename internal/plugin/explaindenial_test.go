package plugin

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// deny creates a call with the flags of run, and finishes it as denied.
func (f *fixture) deny(name, reason string, flags ...string) {
	f.t.Helper()
	f.run(append([]string{"run", "--detach", "--name", name}, flags...)...).expect(f.t, 0)
	f.end(name, v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhaseDenied, Reason: reason, Message: "message of " + reason, Action: &v1alpha1.MappedAction{Type: v1alpha1.ActionShell, Tool: "bash", Summary: "summary of " + name},
	})
}

// The last line says whether the same call would be allowed now.
func TestExplainDenialSaysWhatWouldHappenNow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.policy(func(p *v1alpha1.ExecutionPolicySpec) { p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls"}} })
	f.environment("tools", true)
	f.deny("same", v1alpha1.ReasonBinaryNotAllowed, "--", "git", "status")
	f.deny("other", v1alpha1.ReasonShellDisabled, "--", "git")
	f.deny("allowed", v1alpha1.ReasonBinaryNotAllowed, "--", "ls")
	f.deny("fails", v1alpha1.ReasonBinaryNotAllowed, "--environment", "gone", "--", "ls")
	for name, want := range map[string]string{
		"same":    "Now: the same call from you would be denied for the same reason",
		"other":   "Now: the same call from you would be denied: BinaryNotAllowed:",
		"allowed": "Now: the same call from you would be allowed",
		"fails":   "Now: the same call from you would fail: EnvironmentNotFound:",
	} {
		f.run("explain-denial", name).expect(t, 0, "Call: "+name, "Requested by: admin", "Action: summary of "+name, "Message: message of ", want)
	}
	f.run("explain-denial", "same").expect(t, 0, "Rule: spec.binaries", "You can: use a listed program", "The policy's owner can: add the program to spec.binaries.allowed",
		"Documentation: docs/troubleshooting.md#binarynotallowed", "Policy: "+f.namespace+", of environment tools")
	user := f.user([]string{"toolcall-user"}, "ls")
	f.as(user)("explain-denial", "same").expect(t, 0, "Now: unknown: not readable: you need permission to get executionpolicies")
}

// A repeated call keeps everything but who asked for it, and is never created.
func TestExplainDenialCreatesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.policy()
	f.environment("tools", true)
	f.deny("c", v1alpha1.ReasonShellDisabled, "--shell", "ls", "-e", "A=1")
	f.run("cancel", "c").expect(t, 0)
	f.run("explain-denial", "c").expect(t, 0, "would be allowed")
	list := &v1alpha1.ToolCallList{}
	if err := f.client.List(t.Context(), list, client.InNamespace(f.namespace)); err != nil || len(list.Items) != 1 {
		t.Errorf("%d calls, %v", len(list.Items), err)
	}
	call := f.call("c")
	again := repeat(call)
	if again.Name != "" || again.GenerateName != "run-" || again.Spec.RequestedBy != nil || again.Spec.Cancel || again.Spec.Env[0].Name != "A" || again.Spec.Shell.Command != "ls" {
		t.Errorf("got %+v", again)
	}
	if call.Spec.RequestedBy == nil || !call.Spec.Cancel {
		t.Error("the call itself was changed")
	}
}

func TestExplainDenialOfOtherCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("new")
	f.detached("good")
	f.end("good", succeeded())
	f.run("explain-denial", "new").expect(t, 1, "call new was not denied, its phase is Pending")
	f.run("explain-denial", "good").expect(t, 1, "call good was not denied, its phase is Succeeded: kubectl toolcall describe good shows the details")
	f.run("explain-denial", "none").expect(t, 1, "call none not found")
}

// A reason without a rule, for example of a newer operator, is explained with the texts of the call.
func TestExplainDenialOfAnUnknownReason(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.deny("c", "FromTheFuture", "--", "ls")
	got := f.run("explain-denial", "c")
	got.expect(t, 0, "Reason: FromTheFuture", "Message: message of FromTheFuture")
	if strings.Contains(got.out, "Rule:") || strings.Contains(got.out, "You can:") {
		t.Errorf("a rule was invented: %s", got.out)
	}
}

func TestDescribeOfEachAction(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, c := range map[string]struct {
		flags []string
		want  []string
	}{
		"structured": {[]string{"--timeout", "90s", "--", "git", "commit", "-m", "it's"}, []string{`Command: git commit -m 'it'\''s'`, "Requested time limit: 90s"}},
		"shell":      {[]string{"--shell", "a | b"}, []string{"Command: a | b"}},
		"code":       {[]string{"--code", "python", "-f", "-"}, []string{"Code: python, 9 bytes"}},
		"tool":       {[]string{"--tool", "bash", "--arguments", `{"command": "ls"}`}, []string{`Tool: bash {"command":"ls"}`}},
		"input":      {[]string{"--stdin", "--skill", "review", "--", "cat"}, []string{"Standard input: 9 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f.run(append([]string{"run", "--detach", "--name", name}, c.flags...)...).expect(t, 0)
			f.run("describe", name).expect(t, 0, append(c.want, "Name: "+name, "Requested by: admin", "Phase: Pending")...)
		})
	}
}

func TestDescribeOfAFileAction(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.make(&v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "w"},
		Spec:       v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a b", ContentBase64: ptr.To("AAAA")}},
	}, &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "m"},
		Spec:       v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileMove, Path: "a", Destination: "b"}},
	})
	f.run("describe", "m").expect(t, 0, "File: Move a", "Destination: b")
	status := withOutput(succeeded(), "", "")
	status.ExitCode, status.File = nil, &v1alpha1.FileStatus{Path: "/workspace/a b"}
	f.end("w", status)
	f.run("describe", "w").expect(t, 0, "File: Write 'a b'", "Content: 3 bytes", "Reached: /workspace/a b")
}

func TestDescribeOfAFinishedCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("c")
	status := withOutput(succeeded(), "out\n", "")
	status.TimeoutSeconds, status.Job, status.Pod, status.Node = ptr.To(int32(30)), "c-job", "c-pod", "node-1"
	status.Timings = &v1alpha1.CallTimings{AcceptedMilliseconds: ptr.To(int64(5)), StartedMilliseconds: ptr.To(int64(1200)), FinishedMilliseconds: ptr.To(int64(1300)), Path: v1alpha1.PathWarm}
	f.end("c", status)
	f.run("describe", "c").expect(t, 0,
		"Phase: Succeeded (Completed)", "Exit code: 0", "Time limit: 30s", "Job: c-job Pod: c-pod Node: node-1", "Finished: True (Completed) since",
		"Accepted after: 5ms Started after: 1.2s Finished after: 1.3s Path: warm (a pod from the pool)", "Process duration: 7ms", "Standard output (4 bytes): out")
	f.run("describe", "none").expect(t, 1, "call none not found")
}
