package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/client"
)

// remainderPatience is how long the output of a call that has finished may be away.
const remainderPatience = 30 * time.Second

// readLive follows a stream of a call while it runs, until the context ends: nothing is delivered after that.
func (f *follower) readLive(ctx context.Context, query client.Query) {
	pass := func(deliver func()) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if ctx.Err() == nil {
			deliver()
		}
		return ctx.Err()
	}
	to := f.sink(query.Stream, pass)
	to.Retrying = func(err error) {
		_ = pass(func() { f.notice("retrying", "the output can't be read at the moment, retrying: "+err.Error()) })
	}
	if _, err := f.clients.Output.Copy(ctx, query, to); err != nil {
		_ = pass(func() { f.notice("live", "no live output: "+ExplainOutput(err).Error()) })
	}
}

// sink delivers a stream, with a notice of a part that wasn't kept. pass carries out what it is given, or returns why not.
func (f *follower) sink(stream output.Stream, pass func(deliver func()) error) client.Sink {
	return client.Sink{
		Write: func(p []byte) error {
			return pass(func() {
				f.delivered[stream] += int64(len(p))
				f.send(stream, p)
			})
		},
		Missing: func(start, end int64) {
			_ = pass(func() {
				f.notice(fmt.Sprint(stream, end), fmt.Sprintf("%d bytes of %s, from offset %d on, were not kept", end-start, stream, start))
				f.delivered[stream] = max(f.delivered[stream], end)
			})
		},
	}
}

// ExplainOutput adds what somebody can do who can't read output.
func ExplainOutput(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("it needs permission to get toolcalls/log in the group subresources.toolcall.dev, which the ClusterRoles toolcall-viewer and toolcall-user grant, and for a call of a session to be the session's creator or to use it: %w", err)
	case errors.Is(err, client.ErrNotServed):
		return client.ErrNotServed
	default:
		return err
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
		_, err = f.clients.Output.Copy(ctx, query, f.sink(s.stream, func(deliver func()) error { deliver(); return nil }))
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case f.delivered[s.stream] == 0:
		f.send(s.stream, []byte(s.text))
		f.incomplete(call, fmt.Sprintf("%s comes from the status of the call, which is truncated or not UTF-8: %s", s.stream, ExplainOutput(err)))
	default:
		f.incomplete(call, fmt.Sprintf("%s ends after %d of %d bytes: %s", s.stream, f.delivered[s.stream], s.Bytes, ExplainOutput(err)))
	}
}

// incomplete says that the delivered output is not the whole output.
func (f *follower) incomplete(call *v1alpha1.ToolCall, why string) {
	f.notice(why, why+"; to see the recorded output, run kubectl get tc "+call.Name+" -n "+call.Namespace+" -o yaml")
}
