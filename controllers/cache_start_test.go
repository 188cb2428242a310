package controllers_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// An operator that starts finds calls and Jobs of one before it: its cache fills from a list of them, not from a watch
// as they come. It must read the same in both.
func TestACacheThatStartsLateHoldsWhatOneHoldsThatSawEverythingCome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.environment("env", asDefault)
	small := w.call("small")
	large := w.call("large", func(c *v1alpha1.ToolCall) { c.Spec.Shell.Command = "echo " + strings.Repeat("x", 32<<10) })
	w.accept(small)
	w.accept(large)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	late, err := startCache(ctx, apiServer)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []client.Object{w.job(small), w.job(large), small, large} {
		seen, got := want.DeepCopyObject().(client.Object), want.DeepCopyObject().(client.Object)
		if err := w.client.Get(ctx, client.ObjectKeyFromObject(want), seen); err != nil {
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
