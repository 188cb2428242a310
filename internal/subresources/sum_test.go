package subresources

import (
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/result"
)

// A user who can write into the bucket can store an index without a hash. The client then compares with that of the status.
func TestAClientIsGivenTheHashOfTheStatus(t *testing.T) {
	t.Parallel()
	whole := result.Stream{Head: []byte("stored"), Bytes: 6, SHA256: "of the status"}
	for name, tc := range map[string]struct {
		info  output.Info
		phase v1alpha1.Phase
		want  string
	}{
		"the source has one":             {output.Info{Bytes: 6, SHA256: "of the source"}, v1alpha1.PhaseSucceeded, "of the source"},
		"the source has none":            {output.Info{Bytes: 6}, v1alpha1.PhaseSucceeded, "of the status"},
		"only the beginning is there":    {output.Info{Bytes: 5}, v1alpha1.PhaseSucceeded, ""},
		"the call's result is not known": {output.Info{Bytes: 6}, v1alpha1.PhaseRunning, ""},
	} {
		call := ended(whole, 100)
		call.Status.Phase = tc.phase
		a := &answer{call: call, query: &logRequest{stream: output.Stdout}}
		if got := a.sumOf(tc.info); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
