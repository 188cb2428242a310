package output

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/result"
)

// AddHints has the text for a model say how to get the rest of the streams that it shortens.
func AddHints(call *v1alpha1.ToolCall, s *v1alpha1.ToolCallStatus) {
	if s.Streams == nil {
		return
	}
	appendHints(s, slices.Concat(hintOf(call, output.Stdout, &s.Streams.Stdout), hintOf(call, output.Stderr, &s.Streams.Stderr)))
}

// AddPodHints does the same where there is no output store. A session's pod still has what its policy lets be kept; one of a
// single call ends with it.
func (of *Of) AddPodHints(call *v1alpha1.ToolCall, s *v1alpha1.ToolCallStatus) {
	if s.Streams == nil || call.Spec.SessionRef == nil || !of.isKept() {
		return
	}
	var hints []string
	for _, part := range of.partsOf(s) {
		if part.stream != nil && part.stream.Truncated {
			hints = append(hints, whileInPod+hintText(call, part.key.Stream, part.stream))
		}
	}
	appendHints(s, hints)
}

// whileInPod precedes a hint that isn't true for as long as the call is there.
const whileInPod = "While the session's pod has it: "

// appendHints adds hints to the text for a model, if there are any.
func appendHints(s *v1alpha1.ToolCallStatus, hints []string) {
	if len(hints) > 0 {
		s.Output = result.AddLine(s.Output, strings.Join(hints, "\n"))
	}
}

// dropHints takes those back of streams of which nothing was stored after all.
func dropHints(call *v1alpha1.ToolCall, s *v1alpha1.ToolCallStatus) {
	for name, stream := range map[output.Stream]*v1alpha1.StreamStatus{output.Stdout: &s.Streams.Stdout, output.Stderr: &s.Streams.Stderr} {
		if stream.State == v1alpha1.StreamLost && ptr.Deref(stream.Kept, 0) == 0 {
			s.Output = result.RemoveLine(s.Output, hintText(call, name, stream))
		}
	}
}

// hintOf says how to get a stream that the status shortens and of which the output store has more; nothing for another one.
func hintOf(call *v1alpha1.ToolCall, name output.Stream, stream *v1alpha1.StreamStatus) []string {
	if !stream.Truncated || stream.State == "" || stream.State == v1alpha1.StreamLost && *stream.Kept == 0 {
		return nil
	}
	return []string{hintText(call, name, stream)}
}

func hintText(call *v1alpha1.ToolCall, name output.Stream, stream *v1alpha1.StreamStatus) string {
	return fmt.Sprintf("More of %s (%d bytes in all): kubectl toolcall logs %s -n %s --stream %s, or GET /apis/subresources.toolcall.dev/v1alpha1/namespaces/%s/toolcalls/%s/log?stream=%s&offset=0",
		name, stream.Bytes, call.Name, call.Namespace, name, call.Namespace, call.Name, name)
}

// MaxStatusBytes is what the hints and the rest take that is said in a status about the store.
const MaxStatusBytes = 6 << 10
