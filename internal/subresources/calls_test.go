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
	read int
}

func (o *countedCall) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	call, ok := object.(*v1alpha1.ToolCall)
	if !ok {
		return errors.New("not asked for")
	}
	o.read++
	o.call.DeepCopyInto(call)
	return nil
}

func TestACallWhoseOutputIsStoredIsReadOnceByItsUID(t *testing.T) {
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
	expect := func(when string, read int) {
		t.Helper()
		if server.read != read {
			t.Errorf("%s: read %d times, want %d", when, server.read, read)
		}
	}
	ask("")
	expect("first", 1)
	ask("1")
	expect("with its UID", 1)
	ask("")
	expect("without a UID", 2)
	server.call.UID = "2"
	if got := ask(""); got.UID != "2" {
		t.Errorf("got the call %s, which is gone", got.UID)
	}
	ask("2")
	expect("another call of the name", 3)
}

func TestACallWhoseOutputIsNotStoredIsReadEachTime(t *testing.T) {
	t.Parallel()
	server := &countedCall{call: &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "1"}}}
	server.call.Status.OutputState = v1alpha1.OutputStoring
	c := &calls{live: server, stored: cache.NewLRUExpireCache(storedCalls)}
	for range 3 {
		if _, err := c.get(t.Context(), client.ObjectKeyFromObject(server.call), "1"); err != nil {
			t.Fatal(err)
		}
	}
	if server.read != 3 {
		t.Errorf("read %d times", server.read)
	}
}
