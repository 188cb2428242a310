package output

import (
	"fmt"
	"strings"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/store"
	"toolcall.dev/operator/internal/result"
)

// AddHints has the text for a model say how to get the rest of the streams that it shortens, and of which the output store has more.
func (of *Of) AddHints(call *v1alpha1.ToolCall, s *v1alpha1.ToolCallStatus) {
	of.addHints(call, s, "", func(stream *v1alpha1.StreamStatus) bool {
		return stream.State != "" && (stream.State != v1alpha1.StreamLost || *stream.Kept > 0)
	})
}

// AddPodHints does the same where there is no output store. A session's pod still has what its policy lets be kept; one of a
// single call ends with it.
func (of *Of) AddPodHints(call *v1alpha1.ToolCall, s *v1alpha1.ToolCallStatus) {
	if call.Spec.SessionRef != nil && of.isKept() {
		// It isn't true for as long as the call is there.
		of.addHints(call, s, "While the session's pod has it: ", func(*v1alpha1.StreamStatus) bool { return true })
	}
}

func (of *Of) addHints(call *v1alpha1.ToolCall, s *v1alpha1.ToolCallStatus, while string, hasMore func(*v1alpha1.StreamStatus) bool) {
	var hints []string
	for _, part := range of.partsOf(s) {
		if part.stream != nil && part.stream.Truncated && hasMore(part.stream) {
			hints = append(hints, while+hintText(call, part.key.Stream, part.stream))
		}
	}
	if len(hints) > 0 {
		s.Output = result.AddLine(s.Output, strings.Join(hints, "\n"))
	}
}

// dropHints takes those back of streams of which nothing was stored after all.
func (of *Of) dropHints(call *v1alpha1.ToolCall, s *v1alpha1.ToolCallStatus) {
	for _, part := range of.partsOf(s) {
		if part.stream != nil && part.state() == store.Lost && part.kept() == 0 {
			s.Output = result.RemoveLine(s.Output, hintText(call, part.key.Stream, part.stream))
		}
	}
}

func hintText(call *v1alpha1.ToolCall, name output.Stream, stream *v1alpha1.StreamStatus) string {
	return fmt.Sprintf("More of %s (%d bytes in all): kubectl toolcall logs %s -n %s --stream %s, or GET /apis/subresources.toolcall.dev/v1alpha1/namespaces/%s/toolcalls/%s/log?stream=%s&offset=0",
		name, stream.Bytes, call.Name, call.Namespace, name, call.Namespace, call.Name, name)
}

// MaxStatusBytes is what the hints and the rest take that is said in a status about the store.
const MaxStatusBytes = 6 << 10
