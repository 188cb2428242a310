package fair

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A namespace whose objects take long keeps its share of the workers; another one's are looked at, and its own when there is room.
func TestOneNamespaceDoesNotTakeAllWorkers(t *testing.T) {
	t.Parallel()
	var looked, woken []types.NamespacedName
	entered, leave := make(chan struct{}), make(chan struct{})
	r := OfNamespaces(reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
		if request.Name == "slow" {
			close(entered)
			<-leave
		} else {
			looked = append(looked, request.NamespacedName)
		}
		return reconcile.Result{}, nil
	}), 1, func(object types.NamespacedName) { woken = append(woken, object) })
	look := func(object types.NamespacedName) {
		if result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: object}); err != nil || result.RequeueAfter != 0 {
			t.Errorf("look at %s: %+v, %v", object, result, err)
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); look(callIn("a", "slow")) }()
	<-entered
	look(callIn("a", "next"))
	look(callIn("b", "other"))
	if !slices.Equal(looked, []types.NamespacedName{callIn("b", "other")}) {
		t.Errorf("looked at: %v", looked)
	}
	close(leave)
	<-done
	if !slices.Equal(woken, []types.NamespacedName{callIn("a", "next")}) {
		t.Errorf("woken: %v", woken)
	}
	if look(woken[0]); len(looked) != 2 {
		t.Errorf("looked at: %v", looked)
	}
}
