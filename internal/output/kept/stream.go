// Package kept keeps what a process writes to a stream, for readers by offset.
//
// A Stream counts and hashes all bytes, and keeps the first and the last of them in memory, as much as a call's status shows.
// A stream that is longer goes on in a file, which no name leads to: of more than the file's limit, the first and the last
// half. What is between them is gone, and readers are told where they can go on.
//
// Invariants:
//   - Write doesn't fail, and never waits for readers;
//   - a stream that is no longer than its part in memory costs no file and no goroutine;
//   - memory is bounded whatever the size of the stream: its part in memory and two buffers;
//   - a full or broken disk costs the file only, which is given back at once: what is in memory stays, and the rest is said to
//     be missing. The bytes and the hash are those of the whole stream in any case;
//   - Write waits for a slow disk, as a process does that writes to a file. A disk that is slower than minRate is given up
//     like a broken one, so that the process loses stallLimit and a bounded part of its time to it, and no more.
//
// The package is linked into every tool pod. It works on Linux only.
package kept

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"sync"
	"time"

	"toolcall.dev/operator/internal/output"
)

// MaxBytes bounds what a file keeps of a stream.
const MaxBytes = 1 << 30

// Limits are what is kept of a stream.
type Limits struct {
	// Memory is how many bytes are kept in memory: half of them from the start, half from the end.
	Memory int
	// Disk is how many bytes are kept in a file, if that is more. 0 is none.
	Disk int64
	// Dir is the directory of the file; /tmp when empty.
	Dir string
}

// wantDisk says that more is to be kept than memory has.
func (l *Limits) wantDisk() bool { return l.Disk > int64(max(l.Memory, 1)) }

// Stream is what is kept of a stream. One goroutine writes it, any number read it.
type Stream struct {
	limits Limits
	// create makes the file.
	create func(dir string) (file, error)
	// hash belongs to the one who writes.
	hash hash.Hash

	mu sync.Mutex
	// head and tail are the first and the last bytes, next the position of the oldest byte of a full tail.
	head, tail []byte
	next       int
	bytes      int64
	// disk is nil while there is no file, or no file any more.
	disk *disk
	// noDisk says that no file is made any more.
	noDisk bool
	// done says that no more comes, sha256 is that of all.
	done   bool
	sha256 string
	// dropped says that nothing is kept any more.
	dropped bool
	// wake is closed when there is news; nil when nobody waits.
	wake chan struct{}
}

// Output is a stream that somebody keeps.
type Output interface {
	output.Reader
	// Shrink gives back the memory of a stream that has ended, if a file has all of it. It says how much the stream goes on
	// to take in memory and on disk.
	Shrink() (memory, disk int64)
	// Drop gives back all that the stream takes. Readers are told that it isn't there any more.
	Drop()
}

var _ Output = (*Stream)(nil)

// New returns an empty stream.
func New(l Limits) *Stream {
	l.Memory = max(l.Memory, 0)
	create := func(dir string) (file, error) { return CreateFile(dir) }
	return &Stream{limits: l, create: create, hash: sha256.New(), noDisk: !l.wantDisk()}
}

// Write appends to the stream. It never fails.
func (s *Stream) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.hash.Write(p)
	s.mu.Lock()
	if s.disk == nil && !s.noDisk && s.bytes+int64(len(p)) > int64(s.limits.Memory) {
		// All is in memory so far, and in its order.
		s.disk = newDisk(s, append(append([]byte{}, s.head...), s.tail...))
	}
	d := s.disk
	s.bytes += int64(len(p))
	n := min(s.headMax()-len(s.head), len(p))
	s.head = append(s.head, p[:n]...)
	s.keepLast(p[n:])
	s.notify()
	s.mu.Unlock()
	if d != nil {
		d.write(p)
	}
	return len(p), nil
}

func (s *Stream) headMax() int { return s.limits.Memory - s.tailMax() }
func (s *Stream) tailMax() int { return s.limits.Memory / 2 }

// keepLast keeps the last bytes: first in a growing slice, then in a ring. It needs the lock.
func (s *Stream) keepLast(p []byte) {
	if len(p) > s.tailMax() {
		p = p[len(p)-s.tailMax():]
		s.tail, s.next = append(s.tail[:0], p...), 0
		return
	}
	n := min(s.tailMax()-len(s.tail), len(p))
	s.tail = append(s.tail, p[:n]...)
	for p = p[n:]; len(p) > 0; {
		n := copy(s.tail[s.next:], p)
		s.next = (s.next + n) % len(s.tail)
		p = p[n:]
	}
}

// notify wakes those who wait. It needs the lock.
func (s *Stream) notify() {
	if s.wake != nil {
		close(s.wake)
		s.wake = nil
	}
}

// news is closed at the next change. It needs the lock.
func (s *Stream) news() <-chan struct{} {
	if s.wake == nil {
		s.wake = make(chan struct{})
	}
	return s.wake
}

// Finish says that no more comes, and whether all that was written came. The hash of a part would be taken for that of the
// stream: there is none. It waits up to limit for the file, and gives it up then.
func (s *Stream) Finish(whole bool, limit time.Duration) {
	s.mu.Lock()
	d := s.disk
	s.mu.Unlock()
	if d != nil {
		d.finish(limit)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	if whole {
		s.sha256 = hex.EncodeToString(s.hash.Sum(nil))
	}
	s.notify()
}

// Drop implements Output.
func (s *Stream) Drop() {
	s.mu.Lock()
	s.dropped, s.head, s.tail = true, nil, nil
	d := s.disk
	s.notify()
	s.mu.Unlock()
	if d != nil {
		d.giveUp()
	}
}

// Shrink implements Output.
func (s *Stream) Shrink() (memory, disk int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.disk == nil {
		return int64(len(s.head) + len(s.tail)), 0
	}
	s.head, s.tail = nil, nil
	return 0, min(s.bytes, s.disk.keep)
}

// Memory is what is kept in memory: the first and the last bytes. It is for after the end.
func (s *Stream) Memory() (head, tail []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head, append(append([]byte(nil), s.tail[s.next:]...), s.tail[:s.next]...)
}
