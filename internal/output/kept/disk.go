package kept

import (
	"fmt"
	"io"
	"time"
)

const (
	// bufferSize is how much waits for the disk. Another buffer is being written meanwhile.
	bufferSize = 128 << 10
	// stallLimit is how long the process may wait for a disk, and minRate how many bytes must be written in each second
	// more.
	stallLimit = 2 * time.Second
	minRate    = 8 << 20
)

// file is an *os.File.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// disk is the file of a stream. A goroutine writes it, so that a disk which hangs holds up nobody for ever. The lock of its
// stream is its own too.
type disk struct {
	stream *Stream
	keep   int64
	file   file
	// pending waits to be written, from written on. What is up to claimed is being written: in the ring, that overwrites
	// what was there.
	pending []byte
	// spare is the other buffer, when it is free.
	spare            []byte
	claimed, written int64
	// isFinishing says that no more comes, isFinished that all is written, isGivenUp that nothing more is to be written or
	// read.
	isFinishing, isFinished, isGivenUp bool
	// waited is how long the process has waited. It belongs to the one who writes.
	waited time.Duration

	// work and room have an element when there is something to write, and when there is room again.
	work, room chan struct{}
	ended      chan struct{}
}

// newDisk takes what has come so far. It needs the lock.
func newDisk(s *Stream, before []byte) *disk {
	d := &disk{
		stream: s, keep: min(s.limits.Disk, MaxBytes), pending: before,
		work: make(chan struct{}, 1), room: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	go d.run()
	return d
}

// head and tail are how much is kept from the start, and from the end.
func (d *disk) head() int64 { return d.keep - d.tail() }
func (d *disk) tail() int64 { return d.keep / 2 }

// place is where in the file an offset of the stream is, and how many bytes follow there.
func (d *disk) place(offset int64) (at, size int64) {
	if offset < d.head() {
		return offset, d.head() - offset
	}
	at = (offset - d.head()) % d.tail()
	return d.head() + at, d.tail() - at
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// write has bytes written. It waits while much is to be written before, until the disk is given up.
func (d *disk) write(p []byte) {
	for len(p) > 0 {
		d.stream.mu.Lock()
		if d.isGivenUp {
			d.stream.mu.Unlock()
			return
		}
		n := min(max(bufferSize-len(d.pending), 0), len(p))
		d.pending = append(d.pending, p[:n]...)
		allowed := stallLimit + time.Duration(d.written/minRate)*time.Second
		d.stream.mu.Unlock()
		signal(d.work)
		p = p[n:]
		if n == 0 && !d.awaitRoom(allowed) {
			d.giveUp()
			return
		}
	}
}

// awaitRoom waits until something was written, and says whether that was within stallLimit and what is allowed in all.
func (d *disk) awaitRoom(allowed time.Duration) bool {
	began := time.Now()
	defer func() { d.waited += time.Since(began) }()
	select {
	case <-d.room:
		return true
	case <-d.ended:
		return false
	case <-time.After(min(allowed-d.waited, stallLimit)):
		return false
	}
}

// finish waits until all is written. It gives the disk up when that takes longer than limit.
func (d *disk) finish(limit time.Duration) {
	d.stream.mu.Lock()
	d.isFinishing = true
	d.stream.mu.Unlock()
	signal(d.work)
	select {
	case <-d.ended:
	case <-time.After(limit):
		d.giveUp()
	}
}

// giveUp gives the file back. Its goroutine does that when it isn't stuck any more.
func (d *disk) giveUp() {
	d.stream.mu.Lock()
	again, idle := d.isGivenUp, d.isFinished
	d.isGivenUp = true
	if d.stream.disk == d {
		d.stream.disk, d.stream.noDisk = nil, true
	}
	d.stream.notify()
	d.stream.mu.Unlock()
	if again {
		return
	}
	if idle {
		d.file.Close()
		return
	}
	signal(d.work)
}

// run writes until all is written, or the disk is given up.
func (d *disk) run() {
	defer close(d.ended)
	made, err := d.stream.create(d.stream.limits.Dir)
	if err != nil {
		d.giveUp()
		return
	}
	d.stream.mu.Lock()
	d.file = made
	d.stream.mu.Unlock()
	for {
		batch, over := d.take()
		switch {
		case over:
			return
		case len(batch) == 0:
			<-d.work
			continue
		}
		if err := d.store(batch); err != nil {
			d.giveUp()
			continue
		}
		d.put(batch)
	}
}

// take takes what is to be written. It says when there will be nothing any more.
func (d *disk) take() (batch []byte, over bool) {
	d.stream.mu.Lock()
	defer d.stream.mu.Unlock()
	switch {
	case d.isGivenUp:
		d.file.Close()
		return nil, true
	case len(d.pending) == 0 && d.isFinishing:
		d.isFinished = true
		return nil, true
	case len(d.pending) == 0:
		return nil, false
	}
	batch, d.pending = d.pending, d.spare[:0:cap(d.spare)]
	d.spare = nil
	d.claimed = d.written + int64(len(batch))
	return batch, false
}

// put says that a batch is written, and takes back its buffer.
func (d *disk) put(batch []byte) {
	d.stream.mu.Lock()
	d.written = d.claimed
	// The first one may be larger.
	if cap(batch) <= 2*bufferSize {
		d.spare = batch
	}
	d.stream.notify()
	d.stream.mu.Unlock()
	signal(d.room)
}

func (d *disk) store(batch []byte) error {
	for offset := d.written; len(batch) > 0; {
		if over := int64(len(batch)) - d.tail(); offset >= d.head() && over > 0 {
			// It would be overwritten at once.
			offset, batch = offset+over, batch[over:]
		}
		at, size := d.place(offset)
		n, err := d.file.WriteAt(batch[:min(int64(len(batch)), size)], at)
		if err != nil {
			return fmt.Errorf("keep a stream: %w", err)
		}
		offset, batch = offset+int64(n), batch[n:]
	}
	return nil
}
