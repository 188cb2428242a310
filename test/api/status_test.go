package api_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// report writes a call's status, as the operator does.
func (s *space) report(call *v1alpha1.ToolCall, change func(*v1alpha1.ToolCallStatus)) {
	s.t.Helper()
	base := call.DeepCopy()
	change(&call.Status)
	if err := s.admin.Status().Patch(s.t.Context(), call, client.MergeFrom(base)); err != nil {
		s.t.Fatal(err)
	}
}

func conditionOf(kind string, status metav1.ConditionStatus) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: "Test", LastTransitionTime: metav1.Now()}
}

// A condition that is False from the start would end this wait before the call has run.
func TestKubectlWaitsForAFailure(t *testing.T) {
	s := newSpace(t)
	call := newCall(s.namespace, "waits")
	s.create(call)
	s.report(call, func(status *v1alpha1.ToolCallStatus) {
		status.Conditions = []metav1.Condition{conditionOf(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown)}
	})
	if said, err := s.Kubectl("", "wait", "-n", s.namespace, "toolcall/waits", "--for=condition=Succeeded=False", "--timeout=0"); err == nil {
		t.Errorf("the wait ended before the call: %s", said)
	}
	wait := s.Command("wait", "-n", s.namespace, "toolcall/waits", "--for=condition=Succeeded=False", "--timeout=60s")
	if err := wait.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = wait.Process.Kill() }()
	s.report(call, func(status *v1alpha1.ToolCallStatus) {
		status.Conditions = []metav1.Condition{conditionOf(v1alpha1.ConditionSucceeded, metav1.ConditionFalse)}
	})
	if err := wait.Wait(); err != nil {
		t.Errorf("kubectl wait: %v", err)
	}
}

func TestCallsAreSelectedByTheirFields(t *testing.T) {
	s := newSpace(t)
	s.grant("alice", "toolcalls", "create")
	s.grant("system:serviceaccount:agents:bob", "toolcalls", "create")
	for name, tc := range map[string]struct {
		user, environment, reason string
		phase                     v1alpha1.Phase
		ttl                       *int32
	}{
		"new":    {user: "alice"},
		"short":  {user: "alice", environment: "tools", phase: v1alpha1.PhaseRunning, ttl: ptr.To(int32(60))},
		"failed": {user: "system:serviceaccount:agents:bob", environment: "tools", phase: v1alpha1.PhaseFailed, reason: v1alpha1.ReasonTimedOut},
	} {
		call := newCall(s.namespace, name)
		call.Spec.TTLSecondsAfterFinished = tc.ttl
		if err := s.as(tc.user, asUser{}).Create(t.Context(), call); err != nil {
			t.Fatal(err)
		}
		if tc.phase != "" {
			s.report(call, func(status *v1alpha1.ToolCallStatus) {
				status.Phase, status.Reason, status.Environment = tc.phase, tc.reason, &v1alpha1.ResolvedEnvironment{Name: tc.environment}
			})
		}
	}
	for selector, want := range map[string][]string{
		"status.phase=Running":            {"short"},
		"status.phase!=Running":           {"failed", "new"},
		"status.phase=":                   {"new"},
		"spec.requestedBy.username=alice": {"new", "short"},
		"spec.requestedBy.username=system:serviceaccount:agents:bob":    {"failed"},
		"status.reason=TimedOut":                                        {"failed"},
		"status.environment.name=tools":                                 {"failed", "short"},
		"status.environment.name=tools,spec.requestedBy.username=alice": {"short"},
		"spec.ttlSecondsAfterFinished=60":                               {"short"},
		"spec.ttlSecondsAfterFinished=":                                 {"failed", "new"},
	} {
		parsed, err := fields.ParseSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		list := &v1alpha1.ToolCallList{}
		if err := s.admin.List(t.Context(), list, client.InNamespace(s.namespace), client.MatchingFieldsSelector{Selector: parsed}); err != nil {
			t.Errorf("%s: %v", selector, err)
			continue
		}
		var got []string
		for _, call := range list.Items {
			got = append(got, call.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s selects %v; want %v", selector, got, want)
		}
	}
}

func TestColumns(t *testing.T) {
	s := newSpace(t)
	s.create(newCall(s.namespace, "call"), newEnvironment(s.namespace, "env"), newSession(s.namespace, "session"))
	for what, want := range map[string]string{
		"toolcall":   "NAME PHASE REASON EXIT ENVIRONMENT ACTION DURATION-MS AGE",
		"tc -owide":  "NAME PHASE REASON EXIT ENVIRONMENT ACTION DURATION-MS AGE REQUESTED-BY SESSION STARTED CPU-MS MEMORY POD NODE",
		"tsn":        "NAME PHASE REASON ENVIRONMENT WORKSPACE AGE",
		"tsn -owide": "NAME PHASE REASON ENVIRONMENT WORKSPACE AGE REQUESTED-BY INCARNATION POD NODE",
		"execenv":    "NAME IMAGE DEFAULT POLICY READY ACTIVE WARM AGE",
	} {
		lines := strings.Split(s.run(append([]string{"get"}, strings.Fields(what)...)...), "\n")
		if got := strings.Join(strings.Fields(lines[0]), " "); got != want {
			t.Errorf("kubectl get %s has the columns %s; want %s", what, got, want)
		}
	}
}
