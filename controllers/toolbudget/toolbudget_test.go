package toolbudget

import (
	"testing"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/queue"
)

func TestABudgetCoversItsSubjects(t *testing.T) {
	t.Parallel()
	subject := func(kind v1alpha1.BudgetSubjectKind, name, namespace string) v1alpha1.BudgetSubject {
		return v1alpha1.BudgetSubject{Kind: kind, Name: name, Namespace: namespace}
	}
	for name, test := range map[string]struct {
		subjects []v1alpha1.BudgetSubject
		user     string
		groups   []string
		want     bool
	}{
		"everybody":                     {user: "alice", want: true},
		"nobody knows who":              {want: true},
		"the user":                      {subjects: []v1alpha1.BudgetSubject{subject(v1alpha1.BudgetUser, "bob", ""), subject(v1alpha1.BudgetUser, "alice", "")}, user: "alice", want: true},
		"another user":                  {subjects: []v1alpha1.BudgetSubject{subject(v1alpha1.BudgetUser, "bob", "")}, user: "alice", groups: []string{"bob"}},
		"a group of the user":           {subjects: []v1alpha1.BudgetSubject{subject(v1alpha1.BudgetGroup, "team", "")}, user: "alice", groups: []string{"x", "team"}, want: true},
		"a user of a group's name":      {subjects: []v1alpha1.BudgetSubject{subject(v1alpha1.BudgetGroup, "team", "")}, user: "team"},
		"the service account":           {subjects: []v1alpha1.BudgetSubject{subject(v1alpha1.BudgetServiceAccount, "a", "ns")}, user: "system:serviceaccount:ns:a", want: true},
		"that name in another":          {subjects: []v1alpha1.BudgetSubject{subject(v1alpha1.BudgetServiceAccount, "a", "ns")}, user: "system:serviceaccount:other:a"},
		"an unknown user, with a named": {subjects: []v1alpha1.BudgetSubject{subject(v1alpha1.BudgetUser, "alice", "")}},
	} {
		if got := covers(test.subjects, test.user, test.groups); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestWhatABudgetLeavesOutIsUnlimited(t *testing.T) {
	t.Parallel()
	b := &v1alpha1.ToolBudget{}
	if got := ruleOf(b).Limits; got != queue.Unlimited() {
		t.Errorf("without limits: %v", got)
	}
	b.Spec = v1alpha1.ToolBudgetSpec{MaxConcurrentCalls: ptr.To[int32](1), MaxSessions: ptr.To[int32](2), CPUSecondsPerHour: ptr.To[int64](3), MaxPendingBytes: ptr.To[int64](4)}
	if got := ruleOf(b).Limits; got != (queue.Amounts{1, 4, 2, 3000}) {
		t.Errorf("with all limits: %v", got)
	}
}
