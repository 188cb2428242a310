package toolcall

import (
	"fmt"
	"slices"
	"strings"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
)

// addHints has the text for a model end by saying how to get the rest of the streams that it shortens.
func addHints(call *v1alpha1.ToolCall, s *v1alpha1.ToolCallStatus) {
	if s.Streams == nil {
		return
	}
	hints := slices.Concat(hintOf(call, output.Stdout, &s.Streams.Stdout), hintOf(call, output.Stderr, &s.Streams.Stderr))
	if len(hints) > 0 {
		s.Output = strings.TrimSuffix(s.Output, "\n") + "\n\n" + strings.Join(hints, "\n")
	}
}

// hintOf says how to get a stream of which the output store has more; nothing for another one.
func hintOf(call *v1alpha1.ToolCall, name output.Stream, stream *v1alpha1.StreamStatus) []string {
	if stream.State == "" || stream.State == v1alpha1.StreamLost && *stream.Kept == 0 {
		return nil
	}
	return []string{fmt.Sprintf("More of %s (%d bytes in all): kubectl toolcall logs %s -n %s --stream %s, or GET /apis/subresources.toolcall.dev/v1alpha1/namespaces/%s/toolcalls/%s/log?stream=%s&offset=0",
		name, stream.Bytes, call.Name, call.Namespace, name, call.Namespace, call.Name, name)}
}

// maxStoredBytes is what the hints and the rest take that is said in a status about the store.
const maxStoredBytes = 6 << 10
