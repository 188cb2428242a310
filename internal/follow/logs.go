package follow

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"
)

// logKind is the stream of the command that a log has.
type logKind int

const (
	logMixed logKind = iota
	logOutput
	logErrors
)

func (k logKind) String() string {
	return [...]string{"output", "standard output", "standard error"}[k]
}

// option is the stream for the log request. It is nil for the mixed log, which every cluster has.
func (k logKind) option() *string {
	switch k {
	case logOutput:
		return ptr.To(corev1.LogStreamStdout)
	case logErrors:
		return ptr.To(corev1.LogStreamStderr)
	default:
		return nil
	}
}

// chunk is a piece of a log, or a notice about the log.
type chunk struct {
	kind   logKind
	data   []byte
	notice string
}

const (
	chunkBytes = 32 << 10
	// openRetry is the delay between two tries to open a log. The kubelet serves no log until it has reported that
	// the pod runs, a moment after the command started.
	openRetry = 100 * time.Millisecond
	// openTries bounds the tries that fail for other reasons. The wait for the kubelet is unbounded.
	openTries = 20
	// notLiveDelay is how long a command runs before a notice says why there is no live output.
	notLiveDelay = 2 * time.Second
)

// logReader reads the log of the pod while the call runs.
type logReader struct {
	pods    corev1client.PodInterface
	pod     string
	out     chan<- chunk
	running *sync.WaitGroup
	// split requests each stream separately. mixed accepts the mixed log where the cluster can't separate them.
	split, mixed bool
}

// run reads until the context ends.
func (r *logReader) run(ctx context.Context) {
	if !r.split {
		r.follow(ctx, logMixed, nil)
		return
	}
	first, err := r.open(ctx, logOutput)
	switch {
	case err == nil:
		r.running.Go(func() { r.follow(ctx, logErrors, nil) })
		r.follow(ctx, logOutput, first)
	case !apierrors.IsInvalid(err):
		r.reportError(ctx, err)
	case r.mixed:
		r.follow(ctx, logMixed, nil)
	default:
		r.noticeNotLive(ctx, mixedLog)
	}
}

// Why output comes at the end.
const (
	mixedLog   = "the log of the pod mixes standard output and standard error: to keep them separate, both are shown when the call has finished"
	sessionLog = "no live output: the log of the pod has the output of all calls of the session: what this call writes is shown when it has finished"
)

// noticeNotLive says why output comes at the end, unless the call finishes before the notice is due.
func (r *logReader) noticeNotLive(ctx context.Context, why string) {
	select {
	case <-ctx.Done():
	case <-time.After(notLiveDelay):
		r.send(ctx, chunk{notice: why})
	}
}

// follow passes a log on. When the log ends, it opens the log again and continues where it was: the API server ends a
// log in the same way when the container has exited and when the connection to the kubelet is lost. body may be open.
func (r *logReader) follow(ctx context.Context, kind logKind, body io.ReadCloser) {
	var read int64
	retry := openRetry
	for {
		if body == nil {
			var err error
			if body, err = r.open(ctx, kind); err != nil {
				r.reportError(ctx, err)
				return
			}
		}
		at := r.copy(ctx, kind, body, read)
		body.Close()
		if at > read {
			retry = openRetry
		}
		body, read = nil, max(read, at)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
			retry = min(2*retry, lastRetry)
		}
	}
}

// copy passes on what follows the first skip bytes, and returns the position in the log.
func (r *logReader) copy(ctx context.Context, kind logKind, body io.Reader, skip int64) int64 {
	at, err := io.CopyN(io.Discard, body, skip)
	for err == nil {
		buf := make([]byte, chunkBytes)
		var n int
		n, err = body.Read(buf)
		at += int64(n)
		if n > 0 && !r.send(ctx, chunk{kind: kind, data: buf[:n]}) {
			return at
		}
	}
	return at
}

// open opens the log, once the pod has one.
func (r *logReader) open(ctx context.Context, kind logKind) (io.ReadCloser, error) {
	options := &corev1.PodLogOptions{Follow: true, Stream: kind.option()}
	for tries := 1; ; {
		body, err := r.pods.GetLogs(r.pod, options).Stream(ctx)
		if err == nil {
			return body, nil
		}
		if isLogErrorFinal(err) || tries == openTries {
			return nil, err
		}
		if !apierrors.IsBadRequest(err) {
			tries++
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(openRetry):
		}
	}
}

// isLogErrorFinal reports whether a retry of reading a log can't help.
func isLogErrorFinal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err)
}

// reportError says why there is no live output.
func (r *logReader) reportError(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case apierrors.IsForbidden(err):
		r.send(ctx, chunk{notice: "no live output: it needs permission to get pods/log in this namespace, which the ClusterRole toolcall-user grants"})
	default:
		r.send(ctx, chunk{notice: fmt.Sprintf("no live output: read the log of pod %s: %v", r.pod, err)})
	}
}

func (r *logReader) send(ctx context.Context, c chunk) bool {
	select {
	case r.out <- c:
		return true
	case <-ctx.Done():
		return false
	}
}

// maxKept bounds the part of a log that is kept for comparison with the status. Both streams of a status are smaller.
const maxKept = 4 << 20

// delivered is what was delivered from one log.
type delivered struct {
	bytes int64
	sum   hash.Hash
	// kept is the delivered output, up to maxKept.
	kept []byte
}

func (d *delivered) add(data []byte) {
	if d.sum == nil {
		d.sum = sha256.New()
	}
	d.bytes += int64(len(data))
	d.sum.Write(data)
	d.kept = append(d.kept, data[:min(len(data), maxKept-len(d.kept))]...)
}

// all returns the delivered output. ok is false if it was too long to keep.
func (d *delivered) all() (data []byte, ok bool) { return d.kept, d.bytes == int64(len(d.kept)) }
