package plugin

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
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
			DurationMilliseconds: ptr.To(int64(61500)),
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
		"Process duration: 1m2s", "Standard output (13 bytes, truncated): one \x1b[31mtwo",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q isn't in\n%s", want, out.String())
		}
	}
	if strings.Contains(text, "Standard error") {
		t.Errorf("got %q", out.String())
	}
}

func TestCheckShowsTheQueue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		queues       []string
		wanted, want string
	}{
		"none":                   {},
		"the environment's":      {queues: []string{"q", "a"}, want: "q"},
		"the same":               {queues: []string{"q"}, wanted: "q", want: "q"},
		"the call's":             {queues: []string{"q", "a", "b"}, wanted: "b", want: "b, chosen by the call"},
		"one that isn't offered": {queues: []string{"q", "a"}, wanted: "b", want: "q: the environment doesn't offer b"},
		"one where none is":      {wanted: "b", want: "none: the environment doesn't offer b"},
	} {
		env, v := &v1alpha1.ExecutionEnvironment{}, &evaluation{call: &v1alpha1.ToolCall{}}
		env.Spec.Queues = tc.queues
		v.call.Labels = map[string]string{jobspec.LabelQueue: tc.wanted}
		if got := v.queue(env); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestSummaryOfPolicies(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		policy v1alpha1.ExecutionPolicySpec
		want   string
	}{
		"the defaults": {v1alpha1.ExecutionPolicySpec{}, "any program; code in python"},
		"nothing but a list": {v1alpha1.ExecutionPolicySpec{
			Binaries: &v1alpha1.BinariesPolicy{Allowed: []string{"ls", "cat"}}, Code: &v1alpha1.CodePolicy{Enabled: ptr.To(false)},
		}, "ls, cat"},
		"an enforced empty list": {v1alpha1.ExecutionPolicySpec{Binaries: &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced}}, "no program; code in python"},
		"shell and any language": {v1alpha1.ExecutionPolicySpec{
			Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}, Code: &v1alpha1.CodePolicy{Languages: []string{}},
		}, "any program; shell; code in any language"},
		"many programs": {v1alpha1.ExecutionPolicySpec{
			Binaries: &v1alpha1.BinariesPolicy{Allowed: strings.Split("abcdefgh", "")}, Code: &v1alpha1.CodePolicy{Enabled: ptr.To(false)},
		}, "a, b, c, d, e, f and 2 more"},
	}
	for name, c := range cases {
		if got := policySummary(&c.policy); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestProgressOfASlowCall(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newProgress(&out, false, progressDelay)
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	p.update(call)
	if out.Len() > 0 {
		t.Errorf("at once: %q", out.String())
	}
	p.due = true
	p.update(call)
	p.update(call)
	call.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStarted, Message: "it waits for its turn"}}
	p.update(call)
	call.Status.Phase = v1alpha1.PhaseRunning
	p.update(call)
	p.stop()
	if out.String() != "call c: waiting for the operator\ncall c: waiting: it waits for its turn\n" {
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
