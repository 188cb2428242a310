package operator

import (
	"strings"
	"testing"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// finishedCall has strings of its own, as decoding makes them.
func finishedCall(name string) *v1alpha1.ToolCall {
	own := func(s string) string { return strings.Clone(s) }
	return &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: own("agents"), Name: name},
		Spec:       v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "make"}},
		Status: v1alpha1.ToolCallStatus{
			Phase: v1alpha1.Phase(own("Succeeded")), Reason: own("Completed"), Stdout: "output", Output: "output",
			Conditions: []metav1.Condition{
				{Type: own(v1alpha1.ConditionStarted), Status: metav1.ConditionTrue},
				{Type: own(v1alpha1.ConditionFinished), Status: metav1.ConditionTrue, Reason: own("Completed"), Message: "long"},
			},
			Environment: &v1alpha1.ResolvedEnvironment{Name: own("tools"), WorkingDir: "/workspace"},
			Runner:      &v1alpha1.RunnerBinding{PodUID: "p", KeyHash: "k"},
		},
	}
}

func TestFinishedCallsAreKeptSmallAndShareTheirStrings(t *testing.T) {
	t.Parallel()
	one, other := finishedCall("one"), finishedCall("other")
	slimCall(one)
	slimCall(other)
	s := one.Status
	if s.Stdout != "" || s.Output != "" || one.Spec.Shell != nil || len(s.Conditions) != 1 || s.Conditions[0].Message != "" {
		t.Errorf("kept %+v", one)
	}
	if s.Phase != v1alpha1.PhaseSucceeded || s.Reason != "Completed" || s.Environment.Name != "tools" || s.Runner.KeyHash != "k" || s.Conditions[0].Type != v1alpha1.ConditionFinished {
		t.Errorf("lost what retention needs: %+v", s)
	}
	for name, pair := range map[string][2]string{
		"namespace":   {one.Namespace, other.Namespace},
		"phase":       {string(s.Phase), string(other.Status.Phase)},
		"reason":      {s.Reason, other.Status.Reason},
		"environment": {s.Environment.Name, other.Status.Environment.Name},
		"condition":   {s.Conditions[0].Type, other.Status.Conditions[0].Type},
	} {
		if unsafe.StringData(pair[0]) != unsafe.StringData(pair[1]) {
			t.Errorf("each call has a copy of its %s", name)
		}
	}
}

func TestCallsThatRunAreKeptWhole(t *testing.T) {
	t.Parallel()
	call := finishedCall("running")
	call.Status.Phase = v1alpha1.PhaseRunning
	slimCall(call)
	if call.Spec.Shell == nil || len(call.Status.Conditions) != 2 || call.Status.Stdout == "" {
		t.Errorf("kept %+v", call)
	}
}
