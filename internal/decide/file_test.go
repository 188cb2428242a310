package decide

import (
	"encoding/json"
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
)

// A status holds all that a file action may print, whatever bytes those are.
func TestTheRoomForAFileActionsOutputFitsBesideItsCall(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 64 << 10, 700 << 10} {
		call := &v1alpha1.ToolCall{Spec: v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{OldString: strings.Repeat("x", size)}}}
		room := outputRoom(call)
		if room < 16<<10 {
			t.Errorf("beside %d bytes there is room for %d", size, room)
		}
		text := strings.Repeat("\x01", room)
		call.Status = v1alpha1.ToolCallStatus{Stdout: text, Output: text}
		if raw, err := json.Marshal(call); err != nil || len(raw)+statusRest > bounds.MaxObjectBytes+1<<10 {
			t.Errorf("beside %d bytes: %d in all, %v", size, len(raw), err)
		}
	}
}
