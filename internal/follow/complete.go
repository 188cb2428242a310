package follow

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// stream is what the status says of one stream.
type stream struct {
	kind logKind
	text string
	v1alpha1.StreamStatus
}

// exact says whether the status has every byte as it was written.
func (s *stream) exact() bool {
	return !s.Truncated && !s.InvalidUTF8 && int64(len(s.text)) == s.Bytes
}

// complete tells of the output that no log has told.
func (f *follower) complete(ctx context.Context, call *v1alpha1.ToolCall) {
	if call.Status.Streams == nil || f.watcher.Output == nil {
		return
	}
	out := stream{logOutput, call.Status.Stdout, call.Status.Streams.Stdout}
	errs := stream{logErrors, call.Status.Stderr, call.Status.Streams.Stderr}
	none := stream{kind: logErrors}
	switch {
	case f.told[logOutput].bytes+f.told[logErrors].bytes > 0:
		f.completeFrom(ctx, call, logOutput, pair{out, none})
		none.kind = logOutput
		f.completeFrom(ctx, call, logErrors, pair{none, errs})
	default:
		f.completeFrom(ctx, call, logMixed, pair{out, errs})
	}
}

// pair is both streams of a call.
type pair struct{ out, errs stream }

// single gives the one stream that has anything in it.
func (p *pair) single() (*stream, bool) {
	switch {
	case p.errs.Bytes == 0:
		return &p.out, true
	case p.out.Bytes == 0:
		return &p.errs, true
	default:
		return nil, false
	}
}

func (p *pair) bytes() int64 { return p.out.Bytes + p.errs.Bytes }

// completeFrom completes what one log was to tell: from the status if that has all of it, else from the log as it
// is now, and says so if neither can.
func (f *follower) completeFrom(ctx context.Context, call *v1alpha1.ToolCall, kind logKind, both pair) {
	told := &f.told[kind]
	if both.out.exact() && both.errs.exact() {
		log, ok := told.all()
		restOut, restErr, fits := missing(log, both.out.text, both.errs.text)
		if !ok || !fits {
			f.incomplete(call, "the live "+kind.String()+" isn't what the call's status has")
			return
		}
		f.send(logOutput, []byte(restOut))
		f.send(logErrors, []byte(restErr))
		return
	}
	if told.bytes >= both.bytes() {
		return
	}
	rest, err := f.readRest(ctx, call, kind, both)
	switch {
	case err == nil:
		f.send(f.restKind(kind, both), rest)
	case told.bytes == 0:
		f.send(logOutput, []byte(both.out.text))
		f.send(logErrors, []byte(both.errs.text))
		f.incomplete(call, "the output is shown as the call's status has it, which isn't byte for byte: "+err.Error())
	default:
		f.incomplete(call, fmt.Sprintf("the live %s ended after %d of %d bytes: %v", kind, told.bytes, both.bytes(), err))
	}
}

// restKind is where the rest of a log belongs.
func (f *follower) restKind(kind logKind, both pair) logKind {
	if only, ok := both.single(); ok && f.told[kind].bytes == 0 {
		return only.kind
	}
	return kind
}

func (f *follower) incomplete(call *v1alpha1.ToolCall, why string) {
	f.once(why, why+"; kubectl get tc "+call.Name+" -n "+call.Namespace+" -o yaml shows what was kept")
}

const (
	// maxLog bounds the log that is read again; kubelets keep less.
	maxLog    = 64 << 20
	restRetry = 250 * time.Millisecond
	// shortTries bounds the reads of a log that has less than was written: it may be a moment behind the result,
	// or was cut for good.
	shortTries = 8
	// failedTries bounds the reads that fail. A busy kubelet says for seconds that a pod waits to start whose
	// result is there already.
	failedTries = 40
)

// readRest reads what comes after the part of the log that was told. The log stays until the Job goes.
func (f *follower) readRest(ctx context.Context, call *v1alpha1.ToolCall, kind logKind, both pair) ([]byte, error) {
	only, single := both.single()
	if !single && f.watcher.Apart && f.watcher.Errors != nil && kind == logMixed {
		return nil, fmt.Errorf("the pod's log mixes the streams")
	}
	if f.clients.Pods == nil || call.Status.Pod == "" {
		return nil, fmt.Errorf("the pod's log can't be read")
	}
	var log []byte
	for short, failed := 0, 0; ; {
		var err error
		if log, err = f.readLog(ctx, call, kind); err != nil {
			if failed++; failed == failedTries || logRefused(err) {
				return nil, err
			}
		} else {
			if int64(len(log)) >= both.bytes() {
				break
			}
			if short++; short == shortTries {
				return nil, fmt.Errorf("the pod's log has %d of %d bytes", len(log), both.bytes())
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(restRetry):
		}
	}
	if single {
		log = log[:only.Bytes]
		if !matches(log, only.SHA256) {
			return nil, fmt.Errorf("the pod's log isn't what the command wrote")
		}
	}
	return f.after(kind, log)
}

// after gives the part of a log that wasn't told, if what was told is its start.
func (f *follower) after(kind logKind, log []byte) ([]byte, error) {
	told := &f.told[kind]
	if told.bytes == 0 {
		return log, nil
	}
	if told.bytes > int64(len(log)) {
		return nil, nil
	}
	sum := sha256.Sum256(log[:told.bytes])
	if !bytes.Equal(sum[:], told.sum.Sum(nil)) {
		return nil, fmt.Errorf("the pod's log was cut since")
	}
	return log[told.bytes:], nil
}

func matches(data []byte, hexSum string) bool {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]) == hexSum
}

func (f *follower) readLog(ctx context.Context, call *v1alpha1.ToolCall, kind logKind) ([]byte, error) {
	options := &corev1.PodLogOptions{Stream: kind.option()}
	body, err := f.clients.Pods.Pods(call.Namespace).GetLogs(call.Status.Pod, options).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the pod's log: %w", err)
	}
	defer body.Close()
	log, err := io.ReadAll(io.LimitReader(body, maxLog))
	if err != nil {
		return nil, fmt.Errorf("read the pod's log: %w", err)
	}
	return log, nil
}
