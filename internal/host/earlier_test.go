package host

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// listOf is an API server with the metadata of calls.
func listOf(calls ...metav1.PartialObjectMetadata) client.Reader {
	return interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			list.(*metav1.PartialObjectMetadataList).Items = calls
			return nil
		},
	})
}

func TestEarlierCallsAreForgottenWhenTheyEndOrAreGone(t *testing.T) {
	t.Parallel()
	call := func(name, uid string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}}
	}
	e := &EarlierCalls{}
	if !e.Has("any") {
		t.Error("before they are read, a call can't be one of them")
	}
	if err := e.Read(t.Context(), listOf(call("a", "a1"), call("b", "b1"), call("c", "c1")), nil); err != nil {
		t.Fatal(err)
	}
	if !e.Has("a1") || !e.Has("b1") || e.Has("later") {
		t.Error("it isn't known which they are")
	}
	e.Forget(named("a"), "a2")
	if !e.Has("a1") {
		t.Error("the end of another call of the name counts")
	}
	e.Forget(named("a"), "a1")
	e.ForgetName(named("b"))
	e.ForgetName(named("nobody"))
	if e.Has("a1") || e.Has("b1") || !e.Has("c1") {
		t.Error("what has ended or is gone is still known, or what isn't is forgotten")
	}
	if len(e.uids) != 1 || len(e.names) != 1 {
		t.Errorf("%d UIDs and %d names are left of one call", len(e.uids), len(e.names))
	}
}
