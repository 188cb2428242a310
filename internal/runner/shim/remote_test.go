package shim

import (
	"testing"

	"toolcall.dev/operator/internal/output"
)

// A disk can be given up while the command writes nothing. Readers that aren't told that would ask for ever.
func TestWhatIsMissingIsLearned(t *testing.T) {
	s := &remoteStream{}
	lost := output.Info{Bytes: 10, Missing: output.Range{Start: 2, End: 8}}
	complete := output.Info{Bytes: 12, Complete: true, SHA256: "x", Missing: output.Range{Start: 2, End: 10}}
	for _, step := range []struct{ said, want output.Info }{
		{output.Info{Bytes: 10}, output.Info{Bytes: 10}},
		{lost, lost},
		{output.Info{Bytes: 9}, lost},
		{output.Info{Bytes: 10}, lost},
		{complete, complete},
		{output.Info{Bytes: 12}, complete},
	} {
		s.learn(step.said)
		if got := s.Info(); got != step.want {
			t.Errorf("after %+v: %+v, want %+v", step.said, got, step.want)
		}
	}
}
