package api_test

import (
	"testing"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestBudgetsThatTheAPIServerTakesAndRefuses(t *testing.T) {
	s := newSpace(t)
	subject := func(kind v1alpha1.BudgetSubjectKind, namespace string) v1alpha1.ToolBudgetSpec {
		return v1alpha1.ToolBudgetSpec{MaxSessions: ptr.To[int32](1), Subjects: []v1alpha1.BudgetSubject{{Kind: kind, Name: "n", Namespace: namespace}}}
	}
	for name, tc := range map[string]struct {
		spec v1alpha1.ToolBudgetSpec
		want string
	}{
		"one limit":                             {v1alpha1.ToolBudgetSpec{MaxPendingBytes: ptr.To[int64](0)}, ""},
		"no limit":                              {v1alpha1.ToolBudgetSpec{}, "set at least one of maxConcurrentCalls"},
		"a negative limit":                      {v1alpha1.ToolBudgetSpec{MaxConcurrentCalls: ptr.To[int32](-1)}, "greater than or equal to 0"},
		"a user":                                {subject(v1alpha1.BudgetUser, ""), ""},
		"a group with a namespace":              {subject(v1alpha1.BudgetGroup, "ns"), "set namespace for a ServiceAccount"},
		"a service account":                     {subject(v1alpha1.BudgetServiceAccount, "ns"), ""},
		"a service account without a namespace": {subject(v1alpha1.BudgetServiceAccount, ""), "set namespace for a ServiceAccount"},
		"another kind":                          {subject("Robot", ""), "Unsupported value"},
		"too many subjects":                     {v1alpha1.ToolBudgetSpec{MaxSessions: ptr.To[int32](1), Subjects: make([]v1alpha1.BudgetSubject, 65)}, "must have at most 64 items"},
	} {
		t.Run(name, func(t *testing.T) {
			s.attempt(t, attempt{&v1alpha1.ToolBudget{Spec: tc.spec}, tc.want})
		})
	}
}
