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

// logKind is which of a command's streams a log shows.
type logKind int

const (
	logMixed logKind = iota
	logOutput
	logErrors
)

func (k logKind) String() string {
	return [...]string{"output", "standard output", "standard error"}[k]
}

// option is the stream to ask the API server for; nil for the only log that every cluster has.
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

// chunk is a piece of a log, or a notice about it.
type chunk struct {
	kind   logKind
	data   []byte
	notice string
}

const (
	chunkBytes = 32 << 10
	// openRetry is the wait between two tries to open a log: the command runs a moment before the kubelet has
	// said that the pod does, and until then there is no log.
	openRetry = 100 * time.Millisecond
	// openTries bounds the tries that fail otherwise; a pod may wait for its kubelet for as long as it likes.
	openTries = 20
	// latenessNoticed is how long a command may run before it is noticed that nothing is shown of it.
	latenessNoticed = 2 * time.Second
)

// logReader reads the log of a call's pod while the call runs.
type logReader struct {
	pods    corev1client.PodInterface
	pod     string
	out     chan<- chunk
	running *sync.WaitGroup
	// split asks for each stream by itself; mixed takes the log of both where that is refused.
	split, mixed bool
}

// run reads until the context or the log ends.
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
		r.giveUp(ctx, err)
	case r.mixed:
		r.follow(ctx, logMixed, nil)
	default:
		r.explainLateness(ctx)
	}
}

// explainLateness says why there is no live output, to those who have waited for it.
func (r *logReader) explainLateness(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(latenessNoticed):
		r.tell(ctx, chunk{notice: "the pod's log mixes standard output and standard error: to keep them apart, they are shown when the call has ended"})
	}
}

// follow hands on a log, and opens it again where it was when it ends: the API server ends it in the same way when
// the container has ended and when the connection to the kubelet is lost. body may be open already.
func (r *logReader) follow(ctx context.Context, kind logKind, body io.ReadCloser) {
	var read int64
	retry := openRetry
	for {
		if body == nil {
			var err error
			if body, err = r.open(ctx, kind); err != nil {
				r.giveUp(ctx, err)
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

// copy hands on all that comes after the first skip bytes, and returns how far the log was read.
func (r *logReader) copy(ctx context.Context, kind logKind, body io.Reader, skip int64) int64 {
	at, err := io.CopyN(io.Discard, body, skip)
	for err == nil {
		buf := make([]byte, chunkBytes)
		var n int
		n, err = body.Read(buf)
		at += int64(n)
		if n > 0 && !r.tell(ctx, chunk{kind: kind, data: buf[:n]}) {
			return at
		}
	}
	return at
}

// open waits until the pod has a log.
func (r *logReader) open(ctx context.Context, kind logKind) (io.ReadCloser, error) {
	options := &corev1.PodLogOptions{Follow: true, Stream: kind.option()}
	for tries := 1; ; {
		body, err := r.pods.GetLogs(r.pod, options).Stream(ctx)
		if err == nil {
			return body, nil
		}
		if logRefused(err) || tries == openTries {
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

// logRefused says whether an error of reading a log stays as it is: asking again is in vain.
func logRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err)
}

func (r *logReader) giveUp(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case apierrors.IsForbidden(err):
		r.tell(ctx, chunk{notice: "no live output: it needs the right to get pods/log in this namespace, which the ClusterRole toolcall-user has"})
	default:
		r.tell(ctx, chunk{notice: fmt.Sprintf("no live output: the log of pod %s can't be read: %v", r.pod, err)})
	}
}

func (r *logReader) tell(ctx context.Context, c chunk) bool {
	select {
	case r.out <- c:
		return true
	case <-ctx.Done():
		return false
	}
}

// maxKept bounds what is kept of a log to compare with a status: more than both streams of a status can hold.
const maxKept = 4 << 20

// telling is what was told of one log.
type telling struct {
	bytes int64
	sum   hash.Hash
	// kept is all of it, up to maxKept.
	kept []byte
}

func (t *telling) add(data []byte) {
	if t.sum == nil {
		t.sum = sha256.New()
	}
	t.bytes += int64(len(data))
	t.sum.Write(data)
	t.kept = append(t.kept, data[:min(len(data), maxKept-len(t.kept))]...)
}

// all is everything that was told; ok is false when it is too much to be kept.
func (t *telling) all() (data []byte, ok bool) { return t.kept, t.bytes == int64(len(t.kept)) }
