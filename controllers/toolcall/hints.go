package toolcall

import (
	"fmt"
	"strings"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
)

// addHints has the text for a model end by saying how to get the rest of the streams that it shortens.
func addHints(call *v1alpha1.ToolCall, s *v1alpha1.ToolCallStatus) {
	var hints []string
	streams := streamsOf(s)
	for _, name := range []output.Stream{output.Stdout, output.Stderr} {
		if stream := streams[name]; stream.State != "" && (stream.State != v1alpha1.StreamLost || *stream.Kept > 0) {
			hints = append(hints, hint(call, name, stream.Bytes))
		}
	}
	if len(hints) > 0 {
		s.Output = strings.TrimSuffix(s.Output, "\n") + "\n\n" + strings.Join(hints, "\n")
	}
}

func hint(call *v1alpha1.ToolCall, name output.Stream, bytes int64) string {
	return fmt.Sprintf("More of %s (%d bytes in all): kubectl toolcall logs %s -n %s --stream %s, or GET /apis/subresources.toolcall.dev/v1alpha1/namespaces/%s/toolcalls/%s/log?stream=%s&offset=0",
		name, bytes, call.Name, call.Namespace, name, call.Namespace, call.Name, name)
}

// maxStoredBytes is what the hints and the rest take that is said in a status about the store.
const maxStoredBytes = 4 << 10
