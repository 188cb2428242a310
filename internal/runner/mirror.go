package runner

import (
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

// mirror copies output to a live writer. A writer that fails gets no more output. The process waits for a slow one, but no
// longer at a time than stallLimit, and no longer in all than that and the time that mirrorRate takes: then the writer misses
// what comes while its queue is full.
type mirror struct {
	w     io.Writer
	queue chan []byte
	done  chan struct{}
	// taken is how many bytes went into the queue, waited how long the process has waited for that.
	taken  int64
	waited time.Duration
	// isStalled says that the last wait was in vain, and the queue is full since.
	isStalled bool
}

// chunks are buffers to be used again.
var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

func newMirror(w io.Writer) *mirror {
	m := &mirror{w: w}
	if w == nil {
		return m
	}
	m.queue = make(chan []byte, mirrorChunks)
	m.done = make(chan struct{})
	go m.copy()
	return m
}

func (m *mirror) copy() {
	defer close(m.done)
	failed := false
	for chunk := range m.queue {
		if !failed {
			_, err := m.w.Write(chunk)
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
	if m.w == nil || size == 0 || !m.enqueue(b) {
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

// finish waits up to limit until everything is written. A writer that hangs keeps its goroutine until it returns.
func (m *mirror) finish(limit time.Duration) {
	if m.w == nil {
		return
	}
	close(m.queue)
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-m.done:
	case <-t.C:
	}
}
