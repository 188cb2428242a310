package toolcall_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

// An operator that starts finds calls and Jobs of one before it: its cache fills from a list of them, not from a watch
// as they come. It must read the same in both.
func TestACacheThatStartsLateHoldsWhatOneHoldsThatSawEverythingCome(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	w.Environment("env", fixture.AsDefault)
	small := w.Call("small")
	large := w.Call("large", func(c *v1alpha1.ToolCall) { c.Spec.Shell.Command = "echo " + strings.Repeat("x", 32<<10) })
	w.Accept(small)
	w.Accept(large)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	late, err := fixture.StartCache(ctx, fixture.ApiServer)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []client.Object{w.Job(small), w.Job(large), small, large} {
		seen, got := want.DeepCopyObject().(client.Object), want.DeepCopyObject().(client.Object)
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(want), seen); err != nil {
			t.Fatal(err)
		}
		if err := late.GetClient().Get(ctx, client.ObjectKeyFromObject(want), got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(seen, got); diff != "" {
			t.Errorf("%T %s: %s", want, want.GetName(), diff)
		}
	}
}
