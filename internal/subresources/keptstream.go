package subresources

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"regexp"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
)

// keptIn is what the status of a call that has ended keeps of a stream; nil for an artifact, and when it doesn't say what the process
// wrote.
func keptIn(status *v1alpha1.ToolCallStatus, stream output.Stream) *keptStream {
	switch {
	case !status.Phase.Terminal() || stream == "":
		return nil
	case status.Streams == nil && neverStarted(status):
		return newKeptStream("", &v1alpha1.StreamStatus{SHA256: emptySHA256})
	case status.Streams == nil:
		return nil
	case stream == output.Stderr:
		return newKeptStream(status.Stderr, &status.Streams.Stderr)
	default:
		return newKeptStream(status.Stdout, &status.Streams.Stdout)
	}
}

// neverStarted says that it is certain that no process wrote anything.
func neverStarted(status *v1alpha1.ToolCallStatus) bool {
	return status.Phase == v1alpha1.PhaseDenied || status.RetrySafe != nil && *status.RetrySafe
}

var emptySHA256 = func() string {
	sum := sha256.Sum256(nil)
	return hex.EncodeToString(sum[:])
}()

// keptStream is a complete stream of which a status keeps the first and last part byte for byte. The rest is missing: what was cut out, and
// what isn't UTF-8.
type keptStream struct {
	head, tail string
	info       output.Info
}

// newKeptStream finds out which bytes of a text in a status are those that the process wrote.
func newKeptStream(text string, status *v1alpha1.StreamStatus) *keptStream {
	r := &keptStream{head: text, info: output.Info{Bytes: status.Bytes, Complete: true, SHA256: status.SHA256}}
	switch all := gaps.FindAllStringIndex(text, -1); {
	case (status.Truncated || status.InvalidUTF8) && len(all) > 0:
		// All from the first to the last of them counts as missing: a process can write such lines itself.
		r.head, r.tail = text[:all[0][0]], text[all[len(all)-1][1]:]
	case status.Truncated, status.InvalidUTF8, int64(len(text)) != status.Bytes:
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

// gaps are what of a text in a status isn't what the process wrote: replaced bytes, and the lines that stand for what result.Stream.Text
// left out, with the newline that it may have added before.
var gaps = regexp.MustCompile(`\x{FFFD}|\n?\[\.\.\. \d+ bytes? left out \.\.\.\]\n`)

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
