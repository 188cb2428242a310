package follow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/client"
)

// OutputReader reads the streams of calls. A client of the aggregated API implements it.
type OutputReader interface {
	Copy(ctx context.Context, q client.Query, to client.Sink) (client.End, error)
}

// chunk is a piece of a stream, the offset where the stream goes on behind a part that wasn't kept, or a notice.
type chunk struct {
	stream output.Stream
	data   []byte
	// next is the offset behind a part that wasn't kept; 0 if this isn't one.
	next int64
	// notice is a sentence for people; of those with the same key, one is passed on.
	notice, key string
}

// remainderPatience is how long the output of a call that has finished may be away.
const remainderPatience = 30 * time.Second

// liveReader follows the streams of a call while it runs.
type liveReader struct {
	output  OutputReader
	call    types.NamespacedName
	uid     types.UID
	out     chan<- chunk
	running *sync.WaitGroup
}

// start follows both streams until the context ends.
func (r *liveReader) start(ctx context.Context) {
	for _, stream := range []output.Stream{output.Stdout, output.Stderr} {
		r.running.Go(func() { r.follow(ctx, stream) })
	}
}

func (r *liveReader) follow(ctx context.Context, stream output.Stream) {
	query := client.Query{Namespace: r.call.Namespace, Name: r.call.Name, UID: r.uid, Stream: stream, Follow: true}
	_, err := r.output.Copy(ctx, query, client.Sink{
		Write: func(p []byte) error {
			return r.send(ctx, chunk{stream: stream, data: append([]byte(nil), p...)})
		},
		Missing: func(start, end int64) {
			_ = r.send(ctx, chunk{stream: stream, next: end, notice: missingText(stream, start, end), key: fmt.Sprint(stream, end)})
		},
		Retrying: func(err error) {
			_ = r.send(ctx, chunk{key: "retrying", notice: "the output can't be read at the moment, retrying: " + err.Error()})
		},
	})
	if err != nil && ctx.Err() == nil {
		_ = r.send(ctx, chunk{key: "live", notice: "no live output: " + outputError(err)})
	}
}

func (r *liveReader) send(ctx context.Context, c chunk) error {
	select {
	case r.out <- c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// missingText marks a part that wasn't kept.
func missingText(stream output.Stream, start, end int64) string {
	return fmt.Sprintf("%d bytes of %s, from offset %d on, were not kept", end-start, stream, start)
}

// outputError says what somebody can do who can't read output.
func outputError(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "it needs permission to get toolcalls/log in the group subresources.toolcall.dev, which the ClusterRoles toolcall-viewer and toolcall-user grant: " + err.Error()
	case errors.Is(err, client.ErrNotServed):
		return client.ErrNotServed.Error()
	default:
		return err.Error()
	}
}

// status is what the status of a finished call says about one stream.
type status struct {
	stream output.Stream
	text   string
	v1alpha1.StreamStatus
}

// exact reports whether the status has every byte as the command wrote it.
func (s *status) exact() bool {
	return !s.Truncated && !s.InvalidUTF8 && int64(len(s.text)) == s.Bytes
}

// deliverRemainder delivers the output that wasn't delivered while the call ran.
func (f *follower) deliverRemainder(ctx context.Context, call *v1alpha1.ToolCall) {
	if call.Status.Streams == nil || f.watcher.Output == nil {
		return
	}
	for _, s := range []status{
		{output.Stdout, call.Status.Stdout, call.Status.Streams.Stdout},
		{output.Stderr, call.Status.Stderr, call.Status.Streams.Stderr},
	} {
		at := f.delivered[s.stream]
		switch {
		case at >= s.Bytes:
		case s.exact():
			f.send(s.stream, []byte(s.text[at:]))
		case f.watcher.NoRemainder:
		default:
			f.readRemainder(ctx, call, &s)
		}
	}
}

// readRemainder delivers what the status doesn't have. Without the API, that is what the status has.
func (f *follower) readRemainder(ctx context.Context, call *v1alpha1.ToolCall, s *status) {
	at := f.delivered[s.stream]
	err := errors.New("there is no connection to the API for output")
	if f.clients.Output != nil {
		query := client.Query{
			Namespace: call.Namespace, Name: call.Name, UID: call.UID, Stream: s.stream, Offset: at, Follow: true, Patience: remainderPatience,
		}
		_, err = f.clients.Output.Copy(ctx, query, client.Sink{
			Write: func(p []byte) error { f.receive(chunk{stream: s.stream, data: p}); return nil },
			Missing: func(start, end int64) {
				f.receive(chunk{stream: s.stream, next: end, notice: missingText(s.stream, start, end), key: fmt.Sprint(s.stream, end)})
			},
		})
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case f.delivered[s.stream] == 0:
		f.send(s.stream, []byte(s.text))
		f.incomplete(call, fmt.Sprintf("%s comes from the status of the call, which is truncated or not UTF-8: %s", s.stream, outputError(err)))
	default:
		f.incomplete(call, fmt.Sprintf("%s ends after %d of %d bytes: %s", s.stream, f.delivered[s.stream], s.Bytes, outputError(err)))
	}
}

// incomplete says that the delivered output is not the whole output.
func (f *follower) incomplete(call *v1alpha1.ToolCall, why string) {
	f.notice(why, why+"; to see the recorded output, run kubectl get tc "+call.Name+" -n "+call.Namespace+" -o yaml")
}
