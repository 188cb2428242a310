package toolcall

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

func TestACallSaysWhatItStartedAs(t *testing.T) {
	t.Parallel()
	o := observed(bound)
	o.decision.RuntimeClass = "gvisor"
	reported := outcome(func(o *result.Outcome) {
		o.Isolation = &result.Isolation{
			Self: &rules.Self{User: 1000, Seccomp: rules.SeccompFilter, UserNamespace: new(false)}, Network: result.NetworkNone,
		}
	})
	if err := reported.Validate(); err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.Isolation{
		User: new(int64(1000)), Seccomp: v1alpha1.SeccompFilter, UserNamespace: new(false), RuntimeClass: "gvisor", Network: v1alpha1.HeldNetworkNone,
	}
	s := o.withResult(reported, 0)
	if diff := cmp.Diff(want, s.Isolation); diff != "" {
		t.Error(diff)
	}
	if raw, err := json.Marshal(s.Isolation); err != nil || len(raw) > 128 {
		t.Errorf("each call takes %d bytes more: %s", len(raw), raw)
	}
	// Nobody knows what the pod was made from, or an older runner says nothing of itself.
	o.decision = nil
	reported.Outcome.Isolation.Self = nil
	if i := o.withResult(reported, 0).Isolation; i.User != nil || i.Seccomp != "" || i.UserNamespace != nil || i.RuntimeClass != "" {
		t.Errorf("got %+v", i)
	}
}
