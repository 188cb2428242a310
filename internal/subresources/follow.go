package subresources

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"toolcall.dev/operator/internal/output"
)

// How often a follow looks for a stream that isn't there: the process hasn't started, or the runner's connection broke.
const (
	minReopen = 20 * time.Millisecond
	maxReopen = 250 * time.Millisecond
	// maxLost is how long the stream of a call that has ended may be away.
	maxLost = 30 * time.Second
	// followTime is how long an answer follows at most, as watches do: who asks again has his rights looked at again.
	followTime = 30 * time.Minute
)

// follow sends what there is from the offset on, then what comes, until the stream is complete, the next bytes weren't kept, the
// client goes, or the server stops. Each of these is a clean end: the client knows how far it has come, and asks again. It
// closes the reader.
func (a *answer) follow(ctx context.Context, reader output.Reader) error {
	defer func() { reader.Close() }()
	ctx, cancel := context.WithTimeout(ctx, followTime)
	defer cancel()
	info := reader.Info()
	start := a.query.offset
	if info.Complete || start <= info.Bytes {
		var err error
		if start, _, err = a.query.resolve(info); err != nil {
			return err
		}
	}
	a.describe(info)
	a.Header().Set(HeaderOffset, strconv.FormatInt(start, 10))
	a.WriteHeader(http.StatusOK)
	if a.r.Method == http.MethodHead || a.FlushError() != nil {
		return nil
	}
	f := &following{answer: a, at: start, left: a.query.limit, pause: minReopen}
	for errors.Is(f.copy(ctx, reader), errLost) {
		next := f.reopen(ctx)
		if next == nil {
			return nil
		}
		reader.Close()
		reader = next
	}
	return nil
}

// following is a follow under way.
type following struct {
	*answer
	// at is the offset of the next byte, left how many more are wanted.
	at, left int64
	// lost is since when no byte has come because the stream was away; zero while it isn't. pause is how long the next look
	// for it waits.
	lost  time.Time
	pause time.Duration
}

// Why a copy ends.
var (
	errEnd  = errors.New("there is nothing more to send")
	errLost = errors.New("another reader may have more")
)

// copy sends what a reader has and gets.
func (f *following) copy(ctx context.Context, reader output.Reader) error {
	for {
		if err := f.next(ctx, reader); err != nil {
			return err
		}
	}
}

// next sends the next bytes, or waits for them.
func (f *following) next(ctx context.Context, reader output.Reader) error {
	err := f.sendNext(ctx, reader)
	var missing *output.MissingError
	switch {
	case err == nil:
		f.lost, f.pause = time.Time{}, minReopen
		return nil
	case errors.Is(err, output.ErrNoMore):
		if reader.Wait(ctx, f.at) != nil {
			return errLost
		}
		return nil
	case errors.Is(err, errEnd), errors.Is(err, io.EOF), errors.As(err, &missing):
		return errEnd
	default:
		return errLost
	}
}

// sendNext reads and sends bytes. There is a buffer only for as long as that takes.
func (f *following) sendNext(ctx context.Context, reader output.Reader) error {
	buffer := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	n, err := reader.ReadAt(ctx, buffer[:min(bufferSize, f.left)], f.at)
	if err != nil {
		return err
	}
	if f.write(buffer[:n]) != nil {
		return errEnd
	}
	f.at += int64(n)
	f.left -= int64(n)
	if f.left == 0 {
		return errEnd
	}
	return nil
}

// reopen waits until a source has the stream again; nil when none will.
func (f *following) reopen(ctx context.Context) output.Reader {
	if f.lost.IsZero() {
		f.lost = f.clock.Now()
	}
	for {
		timer := f.clock.NewTimer(f.pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
		f.pause = min(2*f.pause, maxReopen)
		reader, done := f.tryOpen(ctx)
		if reader != nil || done {
			return reader
		}
	}
}

// tryOpen looks for the stream. done says that it will not come back.
func (f *following) tryOpen(ctx context.Context) (reader output.Reader, done bool) {
	isLate := f.call.Status.Phase.Terminal() && f.clock.Since(f.lost) > maxLost
	call, err := f.calls.again(ctx, f.call)
	if err != nil {
		return nil, isLate || !isUnavailable(err)
	}
	f.call = call
	defer func() { f.call = slim(call) }()
	reader, err = f.open(ctx, true)
	switch {
	case err != nil:
		return nil, isLate || call.Status.Phase.Terminal() && errors.Is(err, output.ErrNotFound)
	case !f.isExpected(reader.Info()):
		// The client asks again, and is told.
		reader.Close()
		return nil, true
	default:
		return reader, false
	}
}
