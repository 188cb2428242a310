package collect

import (
	"strings"
	"testing"

	"toolcall.dev/operator/internal/result"
)

func TestAMessageIsRedactedBeforeItIsCut(t *testing.T) {
	t.Parallel()
	const value = "correct-horse-battery"
	for before := result.MaxArtifactsMessage - 2*len(value); before < result.MaxArtifactsMessage; before++ {
		r := &report{shown: func(text string) string { return strings.ReplaceAll(text, value, "[X]") }}
		r.note("%s%s%s", strings.Repeat("a", before), value, strings.Repeat("b", 100))
		got := r.message()
		if strings.Contains(got, "corr") || len(got) > result.MaxArtifactsMessage {
			t.Fatalf("after %d bytes: %q", before, got[before-10:])
		}
	}
}
