package decide_test

import (
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
)

func TestAnEditedCallIsRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		generation int64
		cancel     bool
		refused    bool
	}{
		{"never changed", 1, false, false},
		{"not yet stored", 0, false, false},
		{"cancelled", 2, true, false},
		{"created cancelled", 1, true, false},
		{"changed", 2, false, true},
		{"changed often", 9, false, true},
	} {
		call := &v1alpha1.ToolCall{}
		call.Generation, call.Spec.Cancel = tc.generation, tc.cancel
		refusal := decide.Edited(call)
		if got := refusal != nil; got != tc.refused || got && !refusal.Denied {
			t.Errorf("%s: got %v", tc.name, refusal)
		}
	}
}

func TestACancelledCallSaysThatItWasRestored(t *testing.T) {
	t.Parallel()
	for mark, want := range map[string]string{
		"": "cancelled before its command started", v1alpha1.RestoredRequester: "named another user",
		v1alpha1.RestoredStatus: "the status of a call that had ended", v1alpha1.RestoredTool: "a tool that restores",
		"what a user wrote": "a tool that restores",
	} {
		call := &v1alpha1.ToolCall{}
		call.Annotations = map[string]string{v1alpha1.AnnotationRestored: mark}
		if got := decide.Cancelled(call); !strings.Contains(got, want) || mark != "" && strings.Contains(got, mark) {
			t.Errorf("%q: %s", mark, got)
		}
	}
}
