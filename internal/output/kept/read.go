package kept

import (
	"context"
	"errors"
	"fmt"
	"io"

	"toolcall.dev/operator/internal/output"
)

// Info implements output.Reader.
func (s *Stream) Info() output.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	gap := s.missing()
	isLost := gap != output.Range{} && s.disk == nil && s.limits.wantDisk()
	return output.Info{Bytes: s.bytes, Complete: s.done, SHA256: s.sha256, Missing: gap, Lost: isLost}
}

// missing needs the lock.
func (s *Stream) missing() output.Range {
	gap := output.Range{Start: int64(len(s.head)), End: s.bytes - int64(len(s.tail))}
	if s.disk != nil {
		gap = output.Range{Start: s.disk.head(), End: s.bytes - s.disk.tail()}
	}
	if gap.Start >= gap.End {
		return output.Range{}
	}
	return gap
}

// Close implements output.Reader. A reader of a stream that is kept here holds nothing.
func (s *Stream) Close() {}

// Wait implements output.Reader.
func (s *Stream) Wait(ctx context.Context, n int64) error {
	for {
		s.mu.Lock()
		if s.dropped {
			s.mu.Unlock()
			return output.ErrNotFound
		}
		if s.bytes > n || s.done {
			s.mu.Unlock()
			return nil
		}
		news := s.news()
		s.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errOffset = errors.New("an offset before the start of the stream")

// ReadAt implements output.Reader. It waits only for what the process wrote and the disk doesn't have yet.
func (s *Stream) ReadAt(ctx context.Context, p []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, errOffset
	}
	for {
		n, disk, news, err := s.readMemory(p, offset)
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		if disk != nil {
			n, err = disk.readAt(p, offset)
		}
		if n > 0 || err != nil {
			return n, err
		}
		if news == nil {
			// What was there is overwritten by now, or the file is gone: the next look tells which.
			continue
		}
		select {
		case <-news:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// readMemory reads what is in memory. Otherwise it says which disk has the offset; news is closed when one that doesn't have
// it yet has more.
func (s *Stream) readMemory(p []byte, offset int64) (n int, from *disk, news <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gap := s.missing()
	inTail := offset - (s.bytes - int64(len(s.tail)))
	switch {
	case s.dropped:
		return 0, nil, nil, output.ErrNotFound
	case offset >= s.bytes && s.done:
		return 0, nil, nil, io.EOF
	case offset >= s.bytes:
		return 0, nil, nil, output.ErrNoMore
	case offset < int64(len(s.head)):
		return copy(p, s.head[offset:]), nil, nil, nil
	case inTail >= 0:
		return s.copyTail(p, int(inTail)), nil, nil, nil
	case offset >= gap.Start && offset < gap.End:
		return 0, nil, nil, &output.MissingError{Next: gap.End}
	case offset < s.disk.written:
		return 0, s.disk, nil, nil
	default:
		return 0, nil, s.news(), nil
	}
}

// copyTail reads the tail from a place in it. It needs the lock.
func (s *Stream) copyTail(p []byte, from int) int {
	at := s.next + from
	if at >= len(s.tail) {
		return copy(p, s.tail[at-len(s.tail):s.next])
	}
	n := copy(p, s.tail[at:])
	return n + copy(p[n:], s.tail[:s.next])
}

// readAt reads what the file has. It returns nothing when the file doesn't have it any more.
func (d *disk) readAt(p []byte, offset int64) (int, error) {
	d.stream.mu.Lock()
	file, end := d.file, d.written
	d.stream.mu.Unlock()
	at, size := d.place(offset)
	n, err := file.ReadAt(p[:min(int64(len(p)), size, end-offset)], at)
	d.stream.mu.Lock()
	defer d.stream.mu.Unlock()
	switch {
	case d.stream.disk != d, offset >= d.head() && offset < d.claimed-d.tail():
		return 0, nil
	case n == 0 && err != nil:
		return 0, fmt.Errorf("read what is kept of a stream: %w", err)
	default:
		return n, nil
	}
}
