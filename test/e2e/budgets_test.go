package e2e

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// Six calls at once under a budget of two: never more than two run, by their own times, and all succeed.
func TestABudgetBoundsHowManyCallsRun(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	budget := &v1alpha1.ToolBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: "two"},
		Spec:       v1alpha1.ToolBudgetSpec{MaxConcurrentCalls: ptr.To[int32](2)},
	}
	must(t, sp.client.Create(t.Context(), budget))
	sp.awaitTrue(t, "the budget is ready", func(ctx context.Context) (bool, error) {
		err := sp.client.Get(ctx, client.ObjectKeyFromObject(budget), budget)
		return len(budget.Status.Conditions) > 0, err
	})
	var calls []*v1alpha1.ToolCall
	for range 6 {
		calls = append(calls, sp.create(t, shell("sleep 1")))
	}
	for i, call := range calls {
		calls[i] = sp.awaitFinished(t, call)
		if s := calls[i].Status; s.Phase != v1alpha1.PhaseSucceeded {
			t.Fatalf("%s ended %s: %s", call.Name, s.Reason, s.Message)
		}
	}
	for _, call := range calls {
		at, others := call.Status.StartTime, 0
		for _, other := range calls {
			if !other.Status.StartTime.After(at.Time) && at.Before(other.Status.CompletionTime) {
				others++
			}
		}
		if others > 2 {
			t.Errorf("when %s started, %d calls ran", call.Name, others)
		}
	}
}
