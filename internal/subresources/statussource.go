package subresources

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
)

// StatusSource has the streams of one call that has ended, as far as the call's status keeps them byte for byte. The rest
// is missing: what was cut out, and what isn't UTF-8.
type StatusSource struct {
	Call *v1alpha1.ToolCall
}

// Open returns a stream of the call.
func (s StatusSource) Open(_ context.Context, key output.Key) (output.Reader, error) {
	if key.Artifact != "" || s.Call.Namespace != key.Namespace || s.Call.Name != key.Name || s.Call.UID != key.UID {
		return nil, output.ErrNotFound
	}
	r, ok := s.read(key.Stream)
	if !ok {
		return nil, output.ErrNotFound
	}
	return r, nil
}

// hasAll says that the status keeps every byte of a stream.
func (s StatusSource) hasAll(stream output.Stream) bool {
	r, ok := s.read(stream)
	return ok && r.info.Missing == output.Range{}
}

// read returns what the status keeps; ok is false when it doesn't say what the process wrote.
func (s StatusSource) read(stream output.Stream) (r *keptStream, ok bool) {
	status := &s.Call.Status
	switch {
	case !status.Phase.Terminal():
		return nil, false
	case status.Streams != nil && stream == output.Stdout:
		return newKeptStream(status.Stdout, &status.Streams.Stdout), true
	case status.Streams != nil && stream == output.Stderr:
		return newKeptStream(status.Stderr, &status.Streams.Stderr), true
	case neverStarted(status):
		return newKeptStream("", &v1alpha1.StreamStatus{SHA256: emptySHA256}), true
	default:
		return nil, false
	}
}

// neverStarted says that it is certain that no process wrote anything.
func neverStarted(status *v1alpha1.ToolCallStatus) bool {
	return status.Streams == nil && (status.Phase == v1alpha1.PhaseDenied || status.RetrySafe != nil && *status.RetrySafe)
}

var emptySHA256 = func() string {
	sum := sha256.Sum256(nil)
	return hex.EncodeToString(sum[:])
}()

// keptStream is a complete stream whose first and last part are in memory.
type keptStream struct {
	head, tail string
	info       output.Info
}

// newKeptStream finds out which bytes of a text in a status are those that the process wrote.
func newKeptStream(text string, status *v1alpha1.StreamStatus) *keptStream {
	r := &keptStream{head: text, info: output.Info{Bytes: status.Bytes, Complete: true, SHA256: status.SHA256}}
	switch {
	case status.Truncated && status.InvalidUTF8:
		// Replaced bytes make the text longer, so that numbers can't be checked.
		head, tail := aroundMarkers(text, splitAnywhere)
		r.head, r.tail = beforeReplaced(head), afterReplaced(tail)
	case status.Truncated:
		r.head, r.tail = aroundMarkers(text, splitOf(status.Bytes))
	case status.InvalidUTF8:
		r.head, r.tail = beforeReplaced(text), afterReplaced(text)
	case int64(len(text)) != status.Bytes:
		r.head = ""
	}
	// A status that contradicts itself says nothing.
	if int64(len(r.head)+len(r.tail)) > status.Bytes {
		r.head, r.tail = "", ""
	}
	if end := status.Bytes - int64(len(r.tail)); int64(len(r.head)) < end {
		r.info.Missing = output.Range{Start: int64(len(r.head)), End: end}
	}
	return r
}

// The line that stands for what result.Stream.Text left out.
const (
	markerStart = "[... "
	markerEnd   = " left out ...]\n"
)

// split takes a text apart at a line that may say how much was left out.
type split func(head, tail string, left int64) (before string, ok bool)

// aroundMarkers returns what certainly stood at both ends of a stream. A process can write such a line itself: everything
// from the first to the last line that may be the true one counts as left out.
func aroundMarkers(text string, try split) (head, tail string) {
	found := false
	for at := 0; ; at += len(markerStart) {
		i := strings.Index(text[at:], markerStart)
		if i < 0 {
			return head, tail
		}
		at += i
		left, rest, ok := parseMarker(text[at:])
		if !ok {
			continue
		}
		if before, ok := try(text[:at], rest, left); ok {
			if !found {
				head, found = before, true
			}
			tail = rest
		}
	}
}

// parseMarker reads the line that a text begins with.
func parseMarker(text string) (left int64, rest string, ok bool) {
	line, rest, ok := strings.Cut(text[len(markerStart):], markerEnd)
	digits, unit, _ := strings.Cut(line, " ")
	left, err := strconv.ParseInt(digits, 10, 64)
	return left, rest, ok && err == nil && left > 0 && (unit == "bytes" || unit == "byte")
}

// splitOf accepts a line with which the number of bytes is right. A newline before the line may have been added to it.
func splitOf(bytes int64) split {
	return func(head, tail string, left int64) (string, bool) {
		switch shown := bytes - left - int64(len(tail)); {
		case shown == int64(len(head)):
			return head, true
		case shown == int64(len(head))-1 && strings.HasSuffix(head, "\n"):
			return head[:len(head)-1], true
		default:
			return "", false
		}
	}
}

// splitAnywhere accepts each line, without the newline before it.
func splitAnywhere(head, _ string, _ int64) (string, bool) {
	return strings.TrimSuffix(head, "\n"), true
}

// beforeReplaced is what stands before the first replacement character: each stands for an unknown number of bytes.
func beforeReplaced(text string) string {
	before, _, _ := strings.Cut(text, string(utf8.RuneError))
	return before
}

// afterReplaced is what stands behind the last one.
func afterReplaced(text string) string {
	i := strings.LastIndex(text, string(utf8.RuneError))
	if i < 0 {
		return text
	}
	return text[i+len(string(utf8.RuneError)):]
}

// Info says what is kept.
func (r *keptStream) Info() output.Info { return r.info }

// ReadAt reads from either part.
func (r *keptStream) ReadAt(_ context.Context, p []byte, offset int64) (int, error) {
	tail := r.info.Bytes - int64(len(r.tail))
	switch {
	case offset >= r.info.Bytes:
		return 0, io.EOF
	case offset < int64(len(r.head)):
		return copy(p, r.head[offset:]), nil
	case offset < tail:
		return 0, &output.MissingError{Next: tail}
	default:
		return copy(p, r.tail[offset-tail:]), nil
	}
}

// Wait returns at once: the stream is complete.
func (r *keptStream) Wait(context.Context, int64) error { return nil }

// Close does nothing.
func (r *keptStream) Close() {}
