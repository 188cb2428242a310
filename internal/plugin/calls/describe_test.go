package calls

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	call := &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "n", CreationTimestamp: metav1.NewTime(now.Add(-time.Minute))},
		Spec:       v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: "echo", Args: []string{"a b", "it's"}}},
		Status: v1alpha1.ToolCallStatus{
			Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonNonZeroExit, ExitCode: ptr.To(int32(3)), RetrySafe: ptr.To(false),
			Stdout: "one\n\x1b[31mtwo\n", Message: "line\nbreak",
			Streams:              &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: 13, Truncated: true}},
			DurationMilliseconds: ptr.To(int64(61500)), Usage: &v1alpha1.CallUsage{CPUMilliseconds: ptr.To(int64(120)), WrittenBytes: ptr.To(int64(0))},
			Environment: &v1alpha1.ResolvedEnvironment{Name: "tools", Env: []v1alpha1.ResolvedEnvVar{
				{Name: "A", Source: v1alpha1.EnvSourceCall}, {Name: "B", Source: v1alpha1.EnvSourceImage},
			}, StrippedEnv: []string{"AWS_X"}},
		},
	}
	var out bytes.Buffer
	if err := describeCall(&out, call, now); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"Age: 60s", "Phase: Failed (NonZeroExit)", "Message: line break", "Documentation: docs/troubleshooting.md#nonzeroexit", "Exit code: 3", "Safe to retry: no",
		`Command: echo 'a b' 'it'\''s'`, "Variables from the call: A", "Variables from the image: B", "Removed variables: AWS_X",
		"Process duration: 1m2s", "Used: 120 ms of processor time, 0 bytes written", "Standard output (13 bytes, truncated): one \x1b[31mtwo",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q isn't in\n%s", want, out.String())
		}
	}
	if strings.Contains(text, "Standard error") {
		t.Errorf("got %q", out.String())
	}
}

// Only a call that failed or was denied leads to the page about its reason.
func TestWhichCallsLeadToTheirReason(t *testing.T) {
	t.Parallel()
	for phase, want := range map[v1alpha1.Phase]string{
		"": "", v1alpha1.PhasePending: "", v1alpha1.PhaseRunning: "", v1alpha1.PhaseSucceeded: "", v1alpha1.PhaseCancelled: "",
		v1alpha1.PhaseFailed: "docs/troubleshooting.md#podlost", v1alpha1.PhaseDenied: "docs/troubleshooting.md#podlost",
	} {
		if got := aboutFailure(&v1alpha1.ToolCallStatus{Phase: phase, Reason: v1alpha1.ReasonPodLost}); got != want {
			t.Errorf("phase %q: %q", phase, got)
		}
	}
}

func TestTimelineIsToScale(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, timings := range map[string]*v1alpha1.CallTimings{
		"": nil,
		"[" + strings.Repeat("-", 20) + strings.Repeat("#", 20) + "] 500ms until started, 500ms until finished": {
			AcceptedMilliseconds: ptr.To(int64(0)), StartedMilliseconds: ptr.To(int64(500)), FinishedMilliseconds: ptr.To(int64(1000)),
		},
		"[.-" + strings.Repeat("#", 39) + "] 1ms until accepted, 1ms until started, 10.0s until finished": {
			AcceptedMilliseconds: ptr.To(int64(1)), StartedMilliseconds: ptr.To(int64(2)), FinishedMilliseconds: ptr.To(int64(10_000)),
		},
		"[" + strings.Repeat(".", 4) + strings.Repeat("-", 36) + "] 2.0s until accepted, 18.0s waiting": {AcceptedMilliseconds: ptr.To(int64(2000))},
		"[" + strings.Repeat(".", 10) + strings.Repeat("-", 10) + strings.Repeat("#", 20) + "] 5.0s until accepted, 5.0s until started, 10.0s running": {
			AcceptedMilliseconds: ptr.To(int64(5000)), StartedMilliseconds: ptr.To(int64(10_000)),
		},
	} {
		call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-20 * time.Second))}}
		call.Status.Timings = timings
		if got := timeline(call, now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// describe shows the Events of this very call, oldest first, and says when it can't.
func TestDescribeShowsEvents(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("c")
	f.Run("describe", "c").Expect(t, 0, "Events: none")
	call := f.Call("c")
	event := func(name, reason string, ago time.Duration) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: name}, Reason: reason, Type: "Warning", Message: "because\x1b[31m",
			InvolvedObject: corev1.ObjectReference{Kind: "ToolCall", Namespace: f.Namespace, Name: "c", UID: call.UID},
			LastTimestamp:  metav1.NewTime(time.Now().Add(-ago)), Count: 2, FirstTimestamp: metav1.NewTime(time.Now().Add(-ago)),
		}
	}
	other := event("other", "Other", 0)
	other.InvolvedObject.UID = "another-call"
	f.Make(event("late", "Late", 20*time.Minute), event("early", "Early", time.Hour), other)
	got := f.Run("describe", "c")
	got.Expect(t, 0, "Events: Warning Early 60m (2 times) because^[[31m Warning Late 20m (2 times) because^[[31m")
	if strings.Contains(got.Out, "Other") {
		t.Errorf("the Event of another call is shown: %s", got.Out)
	}
	user := f.Namespace + "-reader"
	f.Make(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "toolcall-viewer"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	f.Eventually("right to read calls", func() bool { return f.Run("get", "c", "--as", user).Code == 0 })
	f.Run("describe", "c", "--as", user).Expect(t, 0, "Events: not shown: you have no permission to list events in this namespace")
}

// Whatever a status says, the bar is as long as it can be.
func TestATimelineOfNonsenseIsShort(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, milliseconds := range [][3]int64{{-5, -10, 1 << 62}, {1 << 62, -1 << 62, 1}, {-1, -1, -1}, {1 << 62, 1 << 62, 1 << 62}} {
		call := &v1alpha1.ToolCall{Status: v1alpha1.ToolCallStatus{Timings: &v1alpha1.CallTimings{
			AcceptedMilliseconds: &milliseconds[0], StartedMilliseconds: &milliseconds[1], FinishedMilliseconds: &milliseconds[2],
		}}}
		if got := timeline(call, now); len(got) > 10*timelineWidth {
			t.Errorf("%v: %d characters", milliseconds, len(got))
		}
	}
}

func TestDescribeOfEachAction(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
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
			f.Run(append([]string{"run", "--detach", "--name", name}, c.flags...)...).Expect(t, 0)
			f.Run("describe", name).Expect(t, 0, append(c.want, "Name: "+name, "Requested by: admin", "Phase: Pending")...)
		})
	}
}

func TestDescribeOfAFileAction(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Make(&v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "w"},
		Spec:       v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a b", ContentBase64: ptr.To("AAAA")}},
	}, &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "m"},
		Spec:       v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{Operation: v1alpha1.FileMove, Path: "a", Destination: "b"}},
	})
	f.Run("describe", "m").Expect(t, 0, "File: Move a", "Destination: b")
	status := plugintest.WithOutput(plugintest.Succeeded(), "", "")
	status.ExitCode, status.File = nil, &v1alpha1.FileStatus{Path: "/workspace/a b"}
	f.End("w", status)
	f.Run("describe", "w").Expect(t, 0, "File: Write 'a b'", "Content: 3 bytes", "Reached: /workspace/a b")
}

func TestDescribeOfAFinishedCall(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("c")
	status := plugintest.WithOutput(plugintest.Succeeded(), "out\n", "")
	status.TimeoutSeconds, status.Job, status.Pod, status.Node = ptr.To(int32(30)), "c-job", "c-pod", "node-1"
	status.Timings = &v1alpha1.CallTimings{AcceptedMilliseconds: ptr.To(int64(5)), StartedMilliseconds: ptr.To(int64(1200)), FinishedMilliseconds: ptr.To(int64(1300)), Path: v1alpha1.PathWarm}
	f.End("c", status)
	f.Run("describe", "c").Expect(t, 0,
		"Phase: Succeeded (Completed)", "Exit code: 0", "Time limit: 30s", "Job: c-job Pod: c-pod Node: node-1", "Finished: True (Completed) since",
		"Accepted after: 5ms Started after: 1.2s Finished after: 1.3s Path: warm (a pod from the pool)", "Process duration: 7ms", "Standard output (4 bytes): out")
	f.Run("describe", "none").Expect(t, 1, "call none not found")
}
