package decide_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/spec"
)

func TestADecisionSaysWhatACallCollects(t *testing.T) {
	t.Parallel()
	call := v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: "ls"}}
	if d := decideUnder(t, kernelPolicy(nil), call); d.Collect != nil {
		t.Errorf("of a call that collects nothing: %+v", d.Collect)
	}
	call.Collect = []string{"out/*.png", "/data/report"}
	policy := kernelPolicy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Files = &v1alpha1.FilesPolicy{WritePaths: []string{"/data"}, DeniedPaths: []string{"*.pem"}}
		p.Output = &v1alpha1.OutputPolicy{Artifacts: &v1alpha1.ArtifactsPolicy{MaxCount: new(int32(7)), MaxBytes: new(int64(8))}}
	})
	d := decideUnder(t, policy, call)
	want := &spec.Collect{WritePaths: []string{"/data"}, DeniedPaths: []string{"*.pem"}, MaxCount: 7, MaxBytes: 8, MaxTotalBytes: 128 << 20}
	if diff := cmp.Diff(want, d.Collect); diff != "" {
		t.Error(diff)
	}
	// It comes back from where it is stored, and the call has the globs.
	raw, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	stored, err := decide.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	a, err := stored.Assignment(&v1alpha1.ToolCall{Spec: call})
	if err != nil {
		t.Fatal(err)
	}
	want.Globs = call.Collect
	if diff := cmp.Diff(want, a.Collect); diff != "" {
		t.Error(diff)
	}
}
