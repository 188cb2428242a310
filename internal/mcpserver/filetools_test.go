package mcpserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/reply"
)

// What a file tool did is in the text of the answer, and in its structured part.
func TestFileResults(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(func(*v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		s := finishedStatus(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted)
		s.Output, s.File = "one\ntwo", &v1alpha1.FileStatus{Path: "/workspace/a", Bytes: new(int64(7)), SHA256: "abc", NextOffset: new(int64(3)), Truncated: true}
		return s
	})
	answer, result := use(t, connected(t, newTestServer(t, f.local(), 8), nil), "read_file", fields{"path": "a", "session": "mine"})
	call := f.only("finished", func(c *v1alpha1.ToolCall) bool { return c.Status.Phase.Terminal() })
	want := "one\ntwo\n\n[reason: Completed, call: " + call.Name + ", truncated: true, sha256: abc, next_offset: 3]"
	if textOf(answer) != want || answer.IsError {
		t.Errorf("%q", textOf(answer))
	}
	if diff := cmp.Diff(&reply.File{Path: "/workspace/a", Bytes: new(int64(7)), SHA256: "abc", NextOffset: new(int64(3)), Truncated: true}, result.File); diff != "" {
		t.Error(diff)
	}
	if result.ExitCode != nil || result.Session != "mine" || call.Spec.SessionRef.Name != "mine" {
		t.Errorf("%+v", result)
	}
}
