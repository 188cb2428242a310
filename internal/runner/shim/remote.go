package shim

import (
	"context"
	"errors"
	"os"
	"sync"

	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
)

// remote is the output of a command that a shim runs. When the command has ended, it is here.
type remote struct {
	shim           *process
	number         uint64
	stdout, stderr remoteStream
	// limits are what is to be kept of each stream.
	limits kept.Limits
	// over is closed when the shim answers no more.
	over chan struct{}

	mu    sync.Mutex
	asked uint64
	// waiting has what isn't answered, also when nobody waits for it any more.
	waiting map[uint64]chan *answer
}

// maxAsked is how much may be unanswered. It fits into the socket, so that nobody waits for a shim that doesn't read.
const maxAsked = 256

// newRemote is for a command whose streams are kept within limits.
func newRemote(shim *process, limits kept.Limits) *remote {
	r := &remote{shim: shim, number: shim.number, limits: limits, over: make(chan struct{}), waiting: map[uint64]chan *answer{}}
	r.stdout.remote, r.stdout.name = r, output.Stdout
	r.stderr.remote, r.stderr.name = r, output.Stderr
	return r
}

// take passes an answer on.
func (r *remote) take(a *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to := r.waiting[a.ID]; to != nil {
		to <- a
		delete(r.waiting, a.ID)
	}
}

var (
	// errOver says that the command has ended meanwhile.
	errOver = errors.New("the command has ended")
	errBusy = errors.New("the shim doesn't answer")
)

// ask asks the shim.
func (r *remote) ask(ctx context.Context, q read) (*answer, error) {
	answered := make(chan *answer, 1)
	r.mu.Lock()
	if len(r.waiting) >= maxAsked {
		r.mu.Unlock()
		return nil, errBusy
	}
	r.asked++
	q.ID = r.asked
	r.waiting[q.ID] = answered
	r.mu.Unlock()
	// When it fails, the command's end follows. One that has ended isn't the shim's any more, which ignores the request.
	_ = r.shim.send(&request{Number: r.number, Read: &q})
	select {
	case a := <-answered:
		return a, nil
	case <-r.over:
		return nil, errOver
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// end takes what the shim had when the command ended; nil for a shim that is lost.
func (r *remote) end(ended *reply, files []*os.File) {
	var stdout, stderr result.Stream
	var limits [2]int64
	if ended != nil {
		stdout, stderr = ended.Ended.Stdout, ended.Ended.Stderr
		limits = [2]int64{ended.Stdout, ended.Stderr}
	}
	for i, s := range []struct {
		to *remoteStream
		is result.Stream
	}{{&r.stdout, stdout}, {&r.stderr, stderr}} {
		var file *os.File
		within := r.limits
		if limits[i] > 0 && len(files) > 0 {
			file, files, within.Disk = files[0], files[1:], limits[i]
		}
		s.to.end(s.is, within, file)
	}
	closeAll(files)
	close(r.over)
}

// remoteStream is one of the streams. It implements kept.Output.
type remoteStream struct {
	remote *remote
	name   output.Stream

	mu   sync.Mutex
	info output.Info
	// local is the stream when the command has ended.
	local *kept.Stream
	// watched says that the shim was asked to tell when there is more, news is closed when it does; nil when nobody waits.
	watched bool
	news    chan struct{}
	dropped bool
}

func (s *remoteStream) end(r result.Stream, limits kept.Limits, file *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info := output.Info{Bytes: max(r.Bytes, s.info.Bytes), Complete: true, SHA256: r.SHA256}
	if file != nil {
		r.Head, r.Tail = nil, nil
	}
	s.local = kept.Ended(r.Head, r.Tail, info, limits, file)
	if s.dropped {
		s.local.Drop()
	}
	s.notify()
}

// notify needs the lock.
func (s *remoteStream) notify() {
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
}

func (s *remoteStream) ended() *kept.Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.local
}

// learn takes what the shim says. Answers may overtake each other: the one that knows of more bytes is the later one, or of
// the same bytes the one that lacks more of them.
func (s *remoteStream) learn(info output.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isLater := info.Bytes > s.info.Bytes || info.Bytes == s.info.Bytes && lacking(info) > lacking(s.info)
	if info.Complete || !s.info.Complete && isLater {
		s.info = info
	}
}

func lacking(info output.Info) int64 { return info.Missing.End - info.Missing.Start }

// Info implements output.Reader: it is what the shim said last.
func (s *remoteStream) Info() output.Info {
	if local := s.ended(); local != nil {
		return local.Info()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

// ReadAt implements output.Reader.
func (s *remoteStream) ReadAt(ctx context.Context, p []byte, offset int64) (int, error) {
	for {
		if local := s.ended(); local != nil {
			return local.ReadAt(ctx, p, offset)
		}
		a, err := s.remote.ask(ctx, read{Stream: s.name, Offset: offset, Max: len(p)})
		if errors.Is(err, errOver) {
			continue
		}
		if err != nil {
			return 0, err
		}
		s.learn(a.Info)
		return copy(p, a.Bytes), a.err()
	}
}

// Wait implements output.Reader.
func (s *remoteStream) Wait(ctx context.Context, n int64) error {
	for {
		if local := s.ended(); local != nil {
			return local.Wait(ctx, n)
		}
		s.mu.Lock()
		if s.info.Bytes > n || s.info.Complete {
			s.mu.Unlock()
			return nil
		}
		if s.news == nil {
			s.news = make(chan struct{})
		}
		news := s.news
		if !s.watched && s.local == nil {
			s.watched = true
			go s.watch(s.info.Bytes) //nolint:gosec // it watches for all readers, not for the one that came first
		}
		s.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watch waits for more than n bytes, or the end. There is one at a time, whoever waits for how much.
func (s *remoteStream) watch(n int64) {
	a, err := s.remote.ask(context.Background(), read{Stream: s.name, Offset: n, Wait: true})
	if err == nil {
		s.learn(a.Info)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = false
	s.notify()
}

// Close implements output.Reader.
func (s *remoteStream) Close() {}

// Shrink implements kept.Output.
func (s *remoteStream) Shrink() (memory, disk int64) {
	if local := s.ended(); local != nil {
		return local.Shrink()
	}
	return 0, 0
}

// Drop implements kept.Output.
func (s *remoteStream) Drop() {
	s.mu.Lock()
	s.dropped = true
	local := s.local
	s.mu.Unlock()
	if local != nil {
		local.Drop()
	}
}
