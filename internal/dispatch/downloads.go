package dispatch

import (
	"context"
	"math"

	"toolcall.dev/operator/internal/dispatch/wire"
)

const (
	// FrameBytes is how much of an answer makes a frame of HTTP/2 that is, with its header of 9 bytes, one record of TLS. A byte more,
	// and each frame costs another record, another system call and another packet.
	FrameBytes = 16<<10 - 9
	// PartBytes is how much of a file is asked for at a time.
	PartBytes = wire.MaxPart / FrameBytes * FrameBytes
)

// Read hands over a part of a file that is read, from start up to, not including, end, in pieces. A part that has less than was asked for
// is the last one of an archive.
func (t *Transfer) Read(ctx context.Context, start, end int64, to func([]byte) error) error {
	asked := start
	for at := start; at < end; {
		for ; asked < end && asked-at < wire.MaxUnansweredParts*PartBytes; asked = min(asked+PartBytes, end) {
			if err := t.want(asked, int(min(PartBytes, end-asked))); err != nil {
				return err
			}
		}
		n, err := t.passPart(ctx, to)
		if err != nil {
			return err
		}
		if at += int64(n); n < PartBytes {
			break
		}
	}
	return nil
}

// ReadArchive hands over an archive in pieces.
func (t *Transfer) ReadArchive(ctx context.Context, to func([]byte) error) error {
	return t.Read(ctx, 0, math.MaxInt64, to)
}

func (t *Transfer) want(offset int64, most int) error {
	w := wire.Want{ID: t.id, Offset: offset, Max: most}
	t.of.runner.mu.Lock()
	t.wanted = append(t.wanted, w)
	t.of.runner.mu.Unlock()
	return t.of.runner.outbox.send(&wire.Message{Want: &w})
}

// passPart hands over the next part, and returns its length. After an error the receiver may still read it: its memory isn't reused.
func (t *Transfer) passPart(ctx context.Context, to func([]byte) error) (n int, err error) {
	part, err := await(ctx, t, stallTimeout, t.parts)
	if err != nil {
		return 0, t.orFailure(err)
	}
	if n = len(part.Payload); n > 0 {
		if err := to(part.Payload); err != nil {
			return 0, err
		}
	}
	part.Release()
	return n, nil
}
