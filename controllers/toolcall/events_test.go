package toolcall

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
)

func TestAnEndIsAnnouncedOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		make func(*observation) *v1alpha1.ToolCallStatus
		want string
	}{
		"a failure":      {func(o *observation) *v1alpha1.ToolCallStatus { return o.fail("Why", "because") }, "Warning Why Because"},
		"a denial":       {func(o *observation) *v1alpha1.ToolCallStatus { return o.end(v1alpha1.PhaseDenied, "Why", "because") }, "Warning Why Because"},
		"a cancellation": {func(o *observation) *v1alpha1.ToolCallStatus { return o.end(v1alpha1.PhaseCancelled, "Why", "because") }, "Normal Why Because"},
		"a success":      {func(o *observation) *v1alpha1.ToolCallStatus { return o.withResult(outcome(), 0) }, ""},
		"no end":         {func(o *observation) *v1alpha1.ToolCallStatus { return o.pending(v1alpha1.ReasonQueued, "x") }, ""},
		"a long message": {func(o *observation) *v1alpha1.ToolCallStatus { return o.fail("Why", strings.Repeat("x", 5000)) }, "Warning Why " + bounds.Note("X"+strings.Repeat("x", 4999))},
	} {
		o := stored(decided)
		c := newCluster(t, o.call)
		status := tc.make(o)
		for range 2 {
			if _, err := c.apply(context.Background(), o, effects{status: status}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			// The next pass sees what was written.
			o.call.Status = *status
		}
		got := ""
		for len(c.recorder.Events) > 0 {
			got += <-c.recorder.Events
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestEventsOfANamespaceAreBounded(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.recorder.Events = make(chan string, 10*rateBurst)
	for i := range 5 * rateBurst {
		o := observed()
		o.call.Name = fmt.Sprint("call-", i)
		after := o.call.DeepCopy()
		after.Status = *o.end(v1alpha1.PhaseDenied, "Why", "because")
		c.announce(t.Context(), o, after)
	}
	if got := len(c.recorder.Events); got != rateBurst {
		t.Errorf("%d Events", got)
	}
}
