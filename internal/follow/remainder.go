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

// stream is what the status says about one stream.
type stream struct {
	kind logKind
	text string
	v1alpha1.StreamStatus
}

// exact reports whether the status has every byte as the command wrote it.
func (s *stream) exact() bool {
	return !s.Truncated && !s.InvalidUTF8 && int64(len(s.text)) == s.Bytes
}

// deliverRemainder delivers the output that no log has delivered.
func (f *follower) deliverRemainder(ctx context.Context, call *v1alpha1.ToolCall) {
	if call.Status.Streams == nil || f.watcher.Output == nil {
		return
	}
	out := stream{logOutput, call.Status.Stdout, call.Status.Streams.Stdout}
	errs := stream{logErrors, call.Status.Stderr, call.Status.Streams.Stderr}
	none := stream{kind: logErrors}
	switch {
	case f.delivered[logOutput].bytes+f.delivered[logErrors].bytes > 0:
		f.deliverRest(ctx, call, logOutput, pair{out, none})
		none.kind = logOutput
		f.deliverRest(ctx, call, logErrors, pair{none, errs})
	default:
		f.deliverRest(ctx, call, logMixed, pair{out, errs})
	}
}

// pair holds both streams of a call.
type pair struct{ out, errs stream }

// single returns the stream that has output, if only one has.
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

// deliverRest delivers what one log was to deliver: from the status if that has the whole output, otherwise from the
// log. A notice says so if neither has it.
func (f *follower) deliverRest(ctx context.Context, call *v1alpha1.ToolCall, kind logKind, both pair) {
	done := &f.delivered[kind]
	if both.out.exact() && both.errs.exact() {
		log, ok := done.all()
		restOut, restErr, fits := undelivered(log, both.out.text, both.errs.text)
		if !ok || !fits {
			f.incomplete(call, "the live "+kind.String()+" differs from the status of the call")
			return
		}
		f.send(logOutput, []byte(restOut))
		f.send(logErrors, []byte(restErr))
		return
	}
	if done.bytes >= both.bytes() {
		return
	}
	rest, err := f.readRest(ctx, call, kind, both)
	switch {
	case err == nil:
		f.send(f.restKind(kind, both), rest)
	case done.bytes == 0:
		f.send(logOutput, []byte(both.out.text))
		f.send(logErrors, []byte(both.errs.text))
		f.incomplete(call, "the output comes from the status of the call, which is truncated or not UTF-8: "+err.Error())
	default:
		f.incomplete(call, fmt.Sprintf("the live %s ended after %d of %d bytes: %v", kind, done.bytes, both.bytes(), err))
	}
}

// restKind is the stream that the rest of a log belongs to.
func (f *follower) restKind(kind logKind, both pair) logKind {
	if only, ok := both.single(); ok && f.delivered[kind].bytes == 0 {
		return only.kind
	}
	return kind
}

// incomplete says that the delivered output is not the whole output.
func (f *follower) incomplete(call *v1alpha1.ToolCall, why string) {
	f.notice(why, why+"; to see the recorded output, run kubectl get tc "+call.Name+" -n "+call.Namespace+" -o yaml")
}

const (
	// maxLog bounds the log that is read. Kubelets keep less.
	maxLog    = 64 << 20
	restRetry = 250 * time.Millisecond
	// shortTries bounds the reads of a log that is shorter than the output: it can be a moment behind the result, or
	// the kubelet has removed a part.
	shortTries = 8
	// failedTries bounds the reads that fail. A busy kubelet can report for seconds that a container waits to start
	// although the result exists.
	failedTries = 40
)

// readRest reads what follows the delivered part of the log. The log exists until the Job is deleted.
func (f *follower) readRest(ctx context.Context, call *v1alpha1.ToolCall, kind logKind, both pair) ([]byte, error) {
	only, single := both.single()
	if !single && f.watcher.Separate && f.watcher.Errors != nil && kind == logMixed {
		return nil, fmt.Errorf("the log of the pod mixes the streams")
	}
	if InSession(call) {
		return nil, fmt.Errorf("the log of the pod has the output of all calls of the session")
	}
	if f.clients.Pods == nil || call.Status.Pod == "" {
		return nil, fmt.Errorf("the log of the pod is not available")
	}
	var log []byte
	for short, failed := 0, 0; ; {
		var err error
		if log, err = f.readLog(ctx, call, kind); err != nil {
			if failed++; failed == failedTries || isLogErrorFinal(err) {
				return nil, err
			}
		} else {
			if int64(len(log)) >= both.bytes() {
				break
			}
			if short++; short == shortTries {
				return nil, fmt.Errorf("the log of the pod has %d of %d bytes", len(log), both.bytes())
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
			return nil, fmt.Errorf("the log of the pod is not what the command wrote")
		}
	}
	return f.after(kind, log)
}

// after returns the part of a log that follows the delivered part, if the log starts with that.
func (f *follower) after(kind logKind, log []byte) ([]byte, error) {
	done := &f.delivered[kind]
	if done.bytes == 0 {
		return log, nil
	}
	if done.bytes > int64(len(log)) {
		return nil, nil
	}
	sum := sha256.Sum256(log[:done.bytes])
	if !bytes.Equal(sum[:], done.sum.Sum(nil)) {
		return nil, fmt.Errorf("the log of the pod was truncated meanwhile")
	}
	return log[done.bytes:], nil
}

func matches(data []byte, hexSum string) bool {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]) == hexSum
}

func (f *follower) readLog(ctx context.Context, call *v1alpha1.ToolCall, kind logKind) ([]byte, error) {
	options := &corev1.PodLogOptions{Stream: kind.option()}
	body, err := f.clients.Pods.Pods(call.Namespace).GetLogs(call.Status.Pod, options).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the log of the pod: %w", err)
	}
	defer body.Close()
	log, err := io.ReadAll(io.LimitReader(body, maxLog))
	if err != nil {
		return nil, fmt.Errorf("read the log of the pod: %w", err)
	}
	return log, nil
}
