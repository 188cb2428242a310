package runner

import (
	"errors"
	"io"
	"sync"
	"time"
)

const (
	// mirrorChunks bounds how much output waits for a slow writer.
	mirrorChunks = 16
	// stallLimit is how long the process may wait for a writer, and mirrorRate how many bytes the writer must take for each second
	// more.
	stallLimit = 2 * time.Second
	mirrorRate = 8 << 20
)

// Log is a live writer that several commands share. A command can stop waiting for another one's write, but not stop a write of its own.
type Log struct {
	w io.Writer
	// turn has an element while somebody writes.
	turn chan struct{}
}

// NewLog returns a log that is written to w.
func NewLog(w io.Writer) *Log { return &Log{w: w, turn: make(chan struct{}, 1)} }

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) { return l.writeUnless(nil, p) }

var errGivenUp = errors.New("the log was given up")

// writeUnless writes, unless the turn comes after givenUp is closed.
func (l *Log) writeUnless(givenUp <-chan struct{}, p []byte) (int, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
		return l.w.Write(p)
	case <-givenUp:
		return 0, errGivenUp
	}
}

// mirror copies output to a live writer. A writer that fails gets no more output. The process waits for a slow one, for stallLimit
// at a time at most. All waits together last stallLimit at most, and a second more for each mirrorRate bytes that were queued.
// After that, the writer misses what comes while its queue is full.
type mirror struct {
	log   *Log
	queue chan []byte
	// done is closed when all is written, givenUp when that took too long.
	done, givenUp chan struct{}
	// taken is how many bytes went into the queue, waited how long the process has waited for that.
	taken  int64
	waited time.Duration
	// isStalled says that the last wait made no room, and that the queue has been full since then.
	isStalled bool
}

// chunks are buffers to be used again.
var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

func newMirror(w io.Writer) *mirror {
	m := &mirror{}
	if w == nil {
		return m
	}
	log, isShared := w.(*Log)
	if !isShared {
		log = NewLog(w)
	}
	m.log, m.queue = log, make(chan []byte, mirrorChunks)
	m.done, m.givenUp = make(chan struct{}), make(chan struct{})
	go m.copy()
	return m
}

func (m *mirror) copy() {
	defer close(m.done)
	failed := false
	for chunk := range m.queue {
		if !failed {
			_, err := m.log.writeUnless(m.givenUp, chunk)
			failed = err != nil
		}
		recycle(chunk)
	}
}

// buffer returns a buffer that belongs to the caller until it is sent.
func (m *mirror) buffer() []byte { return chunks.Get().(*[chunkSize]byte)[:] }

// recycle keeps a buffer for later, unless marks in place of values made it another one.
func recycle(b []byte) {
	if cap(b) == chunkSize {
		chunks.Put((*[chunkSize]byte)(b[:chunkSize]))
	}
}

// send passes on a buffer, which then no longer belongs to the caller.
func (m *mirror) send(b []byte) {
	size := int64(len(b))
	if m.log == nil || size == 0 || !m.enqueue(b) {
		recycle(b)
		return
	}
	m.taken += size
}

// enqueue waits for room within what is left of the process's time.
func (m *mirror) enqueue(b []byte) bool {
	select {
	case m.queue <- b:
		m.isStalled = false
		return true
	default:
	}
	left := stallLimit + time.Duration(m.taken/mirrorRate)*time.Second - m.waited
	if m.isStalled || left <= 0 {
		return false
	}
	began := time.Now()
	defer func() { m.waited += time.Since(began) }()
	t := time.NewTimer(min(left, stallLimit))
	defer t.Stop()
	select {
	case m.queue <- b:
		return true
	case <-t.C:
		m.isStalled = true
		return false
	}
}

// finish waits up to limit until everything is written. A log that hangs gets none of the rest, and keeps the goroutine only of the
// one that writes.
func (m *mirror) finish(limit time.Duration) {
	if m.log == nil {
		return
	}
	close(m.queue)
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-m.done:
	case <-t.C:
		close(m.givenUp)
		for chunk := range m.queue {
			recycle(chunk)
		}
	}
}
