package fair

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// OfNamespaces bounds how many of a controller's workers look at objects of one namespace at the same time: each is how many. Objects
// beyond that wait, in order, and wake has them looked at again.
func OfNamespaces(r reconcile.Reconciler, each int, wake func(types.NamespacedName)) reconcile.Reconciler {
	shares := NewShares(each, wake)
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		release, ok := shares.Acquire(request.NamespacedName)
		if !ok {
			return reconcile.Result{}, nil
		}
		defer release()
		return r.Reconcile(ctx, request)
	})
}
