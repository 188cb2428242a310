package plugin

import (
	"bytes"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/testing/apitest"
)

// detached creates a call without waiting for it.
func (f *fixture) detached(name string) {
	f.t.Helper()
	f.run("run", "--detach", "--name", name, "--", "ls").expect(f.t, 0, name)
}

// setRunning writes what the operator writes when a pod runs the call.
func (f *fixture) setRunning(name, pod string) {
	f.t.Helper()
	call := f.call(name)
	call.Status = *running(pod)
	if err := f.client.Status().Update(f.t.Context(), call); err != nil {
		f.t.Fatal(err)
	}
}

// writing has a call write to standard output, and returns the stream.
func (f *fixture) writing(call *v1alpha1.ToolCall, text string) *apitest.Stream {
	f.outputs.Add(call, output.Stderr)
	stream := f.outputs.Add(call, output.Stdout)
	_, _ = stream.Write([]byte(text))
	return stream
}

func TestLogsOfAFinishedCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"both", "silent", "denied"} {
		f.detached(name)
	}
	f.end("both", withOutput(succeeded(), "out\nmore", "err\n"))
	f.end("silent", withOutput(succeeded(), "", ""))
	f.end("denied", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: "ShellDisabled", Message: "no\x1b[0m"})
	for name, want := range map[string]printed{
		"both":   {"out\nmore", "err\n", 0},
		"silent": {"", "", 0},
		"denied": {"", "call denied has no recorded output: Denied (ShellDisabled): no^[[0m\n", 0},
	} {
		for _, flags := range [][]string{nil, {"-f"}, {"--raw"}} {
			if got := f.run(append([]string{"logs", name}, flags...)...); got != want {
				t.Errorf("logs %s %q: %+v", name, flags, got)
			}
		}
	}
	for flags, want := range map[string]printed{
		"--stream stdout":                         {"out\nmore", "", 0},
		"--stream stderr":                         {"", "err\n", 0},
		"--offset 2":                              {"t\nmore", "r\n", 0},
		"--stream stdout --offset 1 --limit 4":    {"ut\nm", "", 0},
		"-f --stream stdout --offset 1 --limit 4": {"ut\nm", "", 0},
	} {
		if got := f.run(append([]string{"logs", "both"}, strings.Fields(flags)...)...); got != want {
			t.Errorf("logs %s: %+v", flags, got)
		}
	}
}

// Of a call that runs, logs prints what it has written so far; with -f, it goes on until the end, over a restart of the API.
func TestLogsOfARunningCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("c")
	f.run("logs", "c").expect(t, 0, "call c has not started: to wait for it, run kubectl toolcall logs -f c")
	stdout, stderr := f.writing(f.call("c"), "so far\n"), f.outputs.Add(f.call("c"), output.Stderr)
	f.setRunning("c", "pod")
	if got := f.run("logs", "c"); got != (printed{"so far\n", "", 0}) {
		t.Errorf("got %+v", got)
	}
	out := &signalWriter{wrote: make(chan struct{}, 100)}
	var errs bytes.Buffer
	code := make(chan int, 1)
	go func() {
		args := []string{"--kubeconfig", f.kubeconfig, "-n", f.namespace, "logs", "-f", "c"}
		code <- newCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: &errs}).execute(args)
	}()
	<-out.wrote
	_, _ = stdout.Write([]byte("more\n"))
	<-out.wrote
	_, _ = stderr.Write([]byte("oops"))
	stdout.Finish()
	stderr.Finish()
	f.end("c", withOutput(succeeded(), "so far\nmore\n", "oops"))
	if got := <-code; got != 0 || out.String() != "so far\nmore\n" || errs.String() != "oops" {
		t.Errorf("exit code %d, %q, %q", got, out.String(), errs.String())
	}
}

// logs -f may come before the call has started, and ends with a call that never starts.
func TestLogsOfACallThatHasNotStarted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("c")
	f.detached("denied")
	got := make(chan printed, 2)
	for _, name := range []string{"c", "denied"} {
		go func() { got <- f.run("logs", "-f", name) }()
	}
	stdout := f.writing(f.call("c"), "out\n")
	f.setRunning("c", "pod")
	stdout.Finish()
	f.outputs.Add(f.call("c"), output.Stderr).Finish()
	f.end("c", withOutput(succeeded(), "out\n", ""))
	if first := <-got; first != (printed{"out\n", "", 0}) {
		t.Errorf("got %+v", first)
	}
	f.end("denied", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: "ShellDisabled", Message: "no"})
	if second := <-got; second != (printed{"", "call denied has no recorded output: Denied (ShellDisabled): no\n", 0}) {
		t.Errorf("got %+v", second)
	}
}

// A part that wasn't kept is marked on standard error, and what is behind it comes.
func TestLogsOfAShortenedStream(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("c")
	stdout := f.writing(f.call("c"), "0123456789")
	stdout.Leave(3, 7)
	stdout.Finish()
	f.setRunning("c", "pod")
	if got := f.run("logs", "c", "--stream", "stdout"); got != (printed{"012789", "note: 4 bytes of stdout, from offset 3 on, were not kept\n", 0}) {
		t.Errorf("got %+v", got)
	}
}

func TestLogsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("c")
	f.writing(f.call("c"), "secret")
	f.setRunning("c", "pod")
	user := f.namespace + "-reader"
	f.make(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "reader"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"toolcall.dev"}, Resources: []string{"toolcalls"}, Verbs: []string{"get", "list", "watch"}},
	}}, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	f.eventually("permission of "+user, func() bool { return f.run("get", "c", "--as", user).code == 0 })
	f.run("logs", "c", "--as", user).expect(t, 1, "it needs permission to get toolcalls/log", "the ClusterRoles toolcall-viewer and toolcall-user grant")
	f.run("logs", "none").expect(t, 1, `call none not found in namespace "`+f.namespace)
	f.run("logs", "c", "--stream", "all").expect(t, 1, "--stream=all: must be stdout or stderr")
	f.run("logs", "c", "--offset", "-1").expect(t, 1, "--offset -1: must not be negative")
	f.run("logs", "c", "--limit", "0").expect(t, 1, "--limit 0: must be at least 1")
	f.run("logs", "c", "--offset", "7").expect(t, 1, "the stream has no byte at offset 7: it has 6 bytes")
	f.detached("lost")
	f.end("lost", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonPodLost, RetrySafe: ptr.To(false)})
	f.run("logs", "lost").expect(t, 1, "is not kept", "kubectl toolcall describe lost")
}

// toolcall-viewer and toolcall-user are enough to read output, and neither may read the logs of pods.
func TestRolesReadOutputWithoutLogsOfPods(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"toolcall-viewer", "toolcall-user"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.detached("c")
			f.end("c", withOutput(succeeded(), "out\n", ""))
			user := f.user([]string{role}, "ls")
			f.eventually("rights of "+user, func() bool { return f.run("logs", "c", "--as", user).out == "out\n" })
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: f.namespace, Verb: "get", Resource: "pods", Subresource: "log"},
			}}
			f.make(review)
			if review.Status.Allowed {
				t.Error("the role grants pods/log")
			}
		})
	}
}

// testTimeout bounds every wait, so that a test that fails ends.
const testTimeout = 2 * time.Minute

// eventually waits until a condition holds.
func (f *fixture) eventually(what string, holds func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(testTimeout); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("no %s", what)
		}
	}
}

func TestWaitPrintsOutcomes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"good", "bad", "late", "denied"} {
		f.detached(name)
	}
	f.end("good", succeeded())
	f.end("bad", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: "NonZeroExit", ExitCode: ptr.To(int32(9)), DurationMilliseconds: ptr.To(int64(61500))})
	f.end("denied", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: "CodeDisabled"})
	const seeDenied = "call denied: for what to do, see docs/troubleshooting.md#codedisabled\n"
	for line, want := range map[string]printed{
		"good":              {"good Succeeded Completed exit 0 after 7ms\n", "", 0},
		"bad":               {"bad Failed NonZeroExit exit 9 after 1m2s\n", "", 9},
		"good denied bad":   {"good Succeeded Completed exit 0 after 7ms\ndenied Denied CodeDisabled\nbad Failed NonZeroExit exit 9 after 1m2s\n", seeDenied, 126},
		"bad denied":        {"bad Failed NonZeroExit exit 9 after 1m2s\ndenied Denied CodeDisabled\n", seeDenied, 9},
		"good --timeout 1m": {"good Succeeded Completed exit 0 after 7ms\n", "", 0},
	} {
		if got := f.run(append([]string{"wait"}, strings.Fields(line)...)...); got != want {
			t.Errorf("wait %s: %+v", line, got)
		}
	}
	f.run("wait", "late", "good", "--timeout", "100ms").expect(t, 125, "call late did not finish within --timeout")
	f.run("wait", "none", "bad").expect(t, 125, "wait for call none", "bad Failed")
}

func TestCancelRequestsCancellation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("a")
	f.detached("b")
	f.run("cancel", "a", "none", "b").expect(t, 1, "a: cancellation requested b: cancellation requested", "call none not found")
	if !f.call("a").Spec.Cancel || !f.call("b").Spec.Cancel {
		t.Error("a call was not cancelled")
	}
	f.run("cancel", "a").expect(t, 0, "a: cancellation requested")
	f.run("cancel", "a", "--as", "nobody").expect(t, 1, "cancel call "+f.namespace+"/a")
}
