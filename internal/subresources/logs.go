package subresources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/review"
)

// Headers of an answer. They say what is known of the stream when the answer begins.
const (
	// HeaderUID has the UID of the call.
	HeaderUID = "Toolcall-Uid"
	// HeaderOffset has the offset in the stream of the answer's first byte.
	HeaderOffset = "Toolcall-Offset"
	// HeaderBytes has how many bytes the process has written so far.
	HeaderBytes = "Toolcall-Bytes"
	// HeaderComplete is true when there will be no more, and false otherwise.
	HeaderComplete = "Toolcall-Complete"
	// HeaderSHA256 has the hash of all bytes of a complete stream, in hexadecimal digits. Absent when nobody saw all of them.
	HeaderSHA256 = "Toolcall-Sha256"
	// HeaderMissing has the offsets of the first and the last byte of the part that wasn't kept, as 1024-2047. Absent when all
	// is there. An answer ends before that part; one that would begin in it is an error.
	HeaderMissing = "Toolcall-Missing"
)

// logs serves the streams of calls.
type logs struct {
	calls    *calls
	reviewer *review.Reviewer
	rights   *rights
	sources  []output.Source
	// stored have the output of calls that have ended.
	stored []output.Source
	// forwarder passes requests on to the leader; nil when every source is complete here.
	forwarder *forwarder
	clock     clock.WithTicker
}

// bufferSize is what one request keeps of a stream, while it has something to send.
const bufferSize = 32 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// serve answers a request. Nothing has been written when it returns an error.
func (l *logs) serve(q *exchange) error {
	query, err := parseLogRequest(q.r)
	if err != nil {
		return err
	}
	ctx := q.r.Context()
	if err := l.reviewer.CheckGet(ctx, q.who, q.object); err != nil {
		return err
	}
	call, err := l.calls.get(ctx, q.object, query.uid)
	if err != nil {
		return err
	}
	if err := l.rights.checkSession(ctx, q.who, call); err != nil {
		return err
	}
	artifact, err := findArtifact(call, query)
	if err != nil {
		return err
	}
	a := &answer{logs: l, exchange: q, call: call, query: query, artifact: artifact}
	return a.send(ctx)
}

// answer is one request that is being served.
type answer struct {
	*logs
	*exchange
	call  *v1alpha1.ToolCall
	query *logRequest
	// artifact is what is asked for, if that is no stream.
	artifact *v1alpha1.Artifact
}

// send finds the stream, here or at the leader, and sends what was asked for.
func (a *answer) send(ctx context.Context) error {
	ended := a.call.Status.Phase.Terminal()
	elsewhere := a.forwarder.isNeeded()
	if elsewhere && !ended {
		return a.forwarder.serve(a.exchange, a.query.follow)
	}
	reader, err := a.open(ctx, !elsewhere)
	switch {
	case err == nil && !a.isExpected(reader.Info()):
		reader.Close()
		return streamNotKept(a.query)
	case err == nil:
	case elsewhere:
		return a.forwarder.serve(a.exchange, a.query.follow)
	case !errors.Is(err, output.ErrNotFound):
		return unavailable("the call's output can't be read: %s", err.Error())
	case ended:
		return streamNotKept(a.query)
	case !a.query.follow && (a.call.Status.Phase == v1alpha1.PhaseRunning || a.query.offset > 0 || a.query.span != nil):
		// Somebody who asks for a part has seen the rest: the call runs, whatever its status says yet.
		return unavailable("the call's runner isn't connected to the operator at the moment")
	default:
		reader = notStarted{}
	}
	a.call = slim(a.call)
	if a.query.follow {
		return a.follow(ctx, reader)
	}
	defer reader.Close()
	return a.sendRange(ctx, reader)
}

// slim leaves of a call what a request needs until its end: a status can be large, and a reader slow.
func slim(call *v1alpha1.ToolCall) *v1alpha1.ToolCall {
	kept := &v1alpha1.ToolCall{}
	kept.Namespace, kept.Name, kept.UID = call.Namespace, call.Name, call.UID
	kept.Status.Phase = call.Status.Phase
	return kept
}

// open asks the status first where that has every byte, then the sources in their order, and last the status for what it has.
func (a *answer) open(ctx context.Context, parts bool) (output.Reader, error) {
	key := output.Key{Namespace: a.call.Namespace, Name: a.call.Name, UID: a.call.UID, Stream: a.query.stream, Artifact: a.query.artifact}
	kept := keptIn(&a.call.Status, a.query.stream)
	if kept != nil && kept.info.Missing == (output.Range{}) {
		return kept, nil
	}
	var failed error
	for _, source := range a.candidates() {
		reader, err := source.Open(ctx, key)
		if err == nil {
			return reader, nil
		}
		if !errors.Is(err, output.ErrNotFound) && !errors.Is(err, output.ErrDamaged) {
			failed = cmp.Or(failed, err)
		}
	}
	if failed != nil {
		return nil, failed
	}
	switch state, _ := a.storedState(); {
	case !parts:
		return nil, output.ErrNotFound
	case state == v1alpha1.StreamStoring:
		return nil, errStoring
	case kept == nil:
		return nil, output.ErrNotFound
	default:
		return kept, nil
	}
}

// errStoring is the answer while the bytes are where nobody can be asked: they are neither lost nor here.
var errStoring = errors.New("it is being stored, and its runner isn't connected at the moment")

// candidates are the sources that may have the stream. None is asked in vain: the store may be away.
func (a *answer) candidates() []output.Source {
	if len(a.stored) == 0 || !a.call.Status.Phase.Terminal() {
		return a.sources
	}
	state, isThere := a.storedState()
	switch {
	case !isThere:
		return a.sources
	case state == v1alpha1.StreamComplete || state == v1alpha1.StreamShortened:
		// A session's runner may have it still, where the store is away.
		return slices.Concat(a.stored, a.sources)
	default:
		return slices.Concat(a.sources, a.stored)
	}
}

// storedState is what the status says of the store, and whether something may be there.
func (a *answer) storedState() (state v1alpha1.StreamState, isThere bool) {
	if a.artifact != nil {
		return v1alpha1.StreamState(a.artifact.State), a.artifact.State != "" && a.artifact.State != v1alpha1.OutputLost
	}
	stream := a.streamStatus()
	if stream == nil {
		// The pod was lost. Some may have been stored before that.
		return "", true
	}
	return stream.State, stream.State != "" && (stream.State != v1alpha1.StreamLost || ptr.Deref(stream.Kept, 0) > 0)
}

// isExpected says whether a source has what the status of a call that has ended says. The store isn't trusted more than the runner was.
func (a *answer) isExpected(info output.Info) bool {
	if a.artifact != nil {
		return isSame(info, a.artifact)
	}
	stream := a.streamStatus()
	switch {
	case stream == nil, !info.Complete:
		return true
	case stream.State == v1alpha1.StreamLost:
		// Its beginning may be there.
		return info.Bytes <= stream.Bytes
	}
	return info.Bytes == stream.Bytes && (info.SHA256 == stream.SHA256 || info.SHA256 == "" || stream.SHA256 == "")
}

// streamStatus is what the status says of the stream; nil when the call hasn't ended or its result is unknown.
func (a *answer) streamStatus() *v1alpha1.StreamStatus {
	streams := a.call.Status.Streams
	switch {
	case streams == nil || !a.call.Status.Phase.Terminal():
		return nil
	case a.query.stream == output.Stderr:
		return &streams.Stderr
	default:
		return &streams.Stdout
	}
}

// sendRange sends the bytes that are there.
func (a *answer) sendRange(ctx context.Context, reader output.Reader) error {
	info := reader.Info()
	a.describe(info)
	start, end, err := a.query.resolve(info)
	if err != nil {
		if apierrors.ReasonForError(err) == ReasonRangeNotSatisfiable {
			a.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", info.Bytes))
		}
		return err
	}
	// The first bytes are read before anything is sent: an error can still be told.
	buffer := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	first := 0
	if a.r.Method != http.MethodHead && start < end {
		if first, err = reader.ReadAt(ctx, buffer[:min(bufferSize, end-start)], start); err != nil {
			return readError(err, start)
		}
	}
	h, code := a.Header(), http.StatusOK
	h.Set(HeaderOffset, strconv.FormatInt(start, 10))
	h.Set("Content-Length", strconv.FormatInt(end-start, 10))
	if a.query.span != nil {
		code = http.StatusPartialContent
		total := "*"
		if info.Complete {
			total = strconv.FormatInt(info.Bytes, 10)
		}
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%s", start, end-1, total))
	}
	a.WriteHeader(code)
	if a.r.Method == http.MethodHead {
		return nil
	}
	// From here on the length tells a client that something is lacking.
	for n := first; n > 0; {
		if a.write(buffer[:n]) != nil {
			return nil
		}
		if start += int64(n); start >= end {
			return nil
		}
		if n, err = reader.ReadAt(ctx, buffer[:min(bufferSize, end-start)], start); err != nil {
			return nil
		}
	}
	return nil
}

// describe writes what is known of the stream into the headers.
func (a *answer) describe(info output.Info) {
	h := a.Header()
	h.Set(HeaderUID, string(a.call.UID))
	// What a process wrote is never shown as a page of the API server's origin.
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Accept-Ranges", "bytes")
	if a.artifact != nil {
		describeArtifact(h, a.artifact)
	}
	h.Set(HeaderBytes, strconv.FormatInt(info.Bytes, 10))
	h.Set(HeaderComplete, strconv.FormatBool(info.Complete))
	if sum := a.sumOf(info); info.Complete && sum != "" {
		h.Set(HeaderSHA256, sum)
	}
	if m := info.Missing; m.Start < m.End {
		h.Set(HeaderMissing, fmt.Sprintf("%d-%d", m.Start, m.End-1))
	}
}

// sumOf is the hash that a client compares a whole stream with. Where the source has none, it is that of the status: a user who can write
// into the bucket can leave the hash out.
func (a *answer) sumOf(info output.Info) string {
	if stream := a.streamStatus(); a.artifact == nil && info.SHA256 == "" && stream != nil && stream.Bytes == info.Bytes {
		return stream.SHA256
	}
	return info.SHA256
}

// write sends bytes at once.
func (a *answer) write(p []byte) error {
	if _, err := a.Write(p); err != nil {
		return err
	}
	return a.FlushError()
}

// readError is what a client is told when the first byte can't be read.
func readError(err error, offset int64) error {
	var missing *output.MissingError
	if errors.As(err, &missing) {
		return notKept(offset, missing.Next)
	}
	if errors.Is(err, output.ErrDamaged) {
		return damaged(offset)
	}
	return unavailable("the call's output can't be read: %s", err.Error())
}

// notStarted is the stream of a call whose process hasn't written anything, as far as anybody knows.
type notStarted struct{}

func (notStarted) Info() output.Info { return output.Info{} }
func (notStarted) ReadAt(context.Context, []byte, int64) (int, error) {
	return 0, output.ErrNoMore
}
func (notStarted) Wait(context.Context, int64) error { return io.ErrUnexpectedEOF }
func (notStarted) Close()                            {}
