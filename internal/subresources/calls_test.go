package subresources

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// countedCall is an API server that has one call, and counts what it is asked for.
type countedCall struct {
	client.Reader
	call *v1alpha1.ToolCall
	// away is why it doesn't answer questions for metadata.
	away            error
	whole, metadata int
}

func (o *countedCall) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	switch object := object.(type) {
	case *v1alpha1.ToolCall:
		o.whole++
		o.call.DeepCopyInto(object)
		return nil
	case *metav1.PartialObjectMetadata:
		o.metadata++
		o.call.ObjectMeta.DeepCopyInto(&object.ObjectMeta)
		return o.away
	}
	return errors.New("not asked for")
}

func TestACallWhoseOutputIsStoredIsReadWholeOnce(t *testing.T) {
	t.Parallel()
	server := &countedCall{call: &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "1", ResourceVersion: "5"}}}
	server.call.Status.OutputState = v1alpha1.OutputComplete
	c := &calls{live: server, stored: cache.NewLRUExpireCache(storedCalls)}
	ask := func(uid types.UID) *v1alpha1.ToolCall {
		t.Helper()
		got, err := c.get(t.Context(), client.ObjectKeyFromObject(server.call), uid)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	expect := func(when string, whole, metadata int) {
		t.Helper()
		if server.whole != whole || server.metadata != metadata {
			t.Errorf("%s: read whole %d times, want %d; its metadata %d times, want %d", when, server.whole, whole, server.metadata, metadata)
		}
	}
	ask("")
	expect("first", 1, 0)
	ask("1")
	expect("with its UID", 1, 0)
	ask("")
	expect("without a UID", 1, 1)
	server.call.ResourceVersion, server.call.Spec.Cancel = "6", true
	if !ask("").Spec.Cancel {
		t.Error("what was read before is taken for what is there now")
	}
	expect("after a change", 2, 2)
	server.call.UID = "2"
	if got := ask(""); got.UID != "2" {
		t.Errorf("got the call %s, which is gone", got.UID)
	}
	expect("another call of the name", 3, 3)
	server.away = errors.New("timeout")
	ask("")
	expect("without an answer", 4, 4)
}

func TestACallWhoseOutputIsNotStoredIsReadEachTime(t *testing.T) {
	t.Parallel()
	server := &countedCall{call: &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "1"}}}
	server.call.Status.OutputState = v1alpha1.OutputStoring
	c := &calls{live: server, stored: cache.NewLRUExpireCache(storedCalls)}
	for range 3 {
		if _, err := c.get(t.Context(), client.ObjectKeyFromObject(server.call), ""); err != nil {
			t.Fatal(err)
		}
	}
	if server.whole != 3 || server.metadata != 0 {
		t.Errorf("read whole %d times, its metadata %d times", server.whole, server.metadata)
	}
}
