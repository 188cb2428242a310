package toolsession

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// find gets an object of the session's namespace that its spec names; nil when it names none, or there is none.
func find[T client.Object](ctx context.Context, r *observer, o *observation, ref *v1alpha1.LocalReference, into T) (found T, err error) {
	var none T
	if ref == nil {
		return none, nil
	}
	there, err := r.Objects.Find(ctx, types.NamespacedName{Namespace: o.session.Namespace, Name: ref.Name}, into)
	if err != nil || !there {
		return none, err
	}
	return into, nil
}
