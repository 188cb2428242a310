package sys

import (
	"context"
	"io"

	"golang.org/x/sys/unix"
)

// BufferBytes is how much is read at once.
const BufferBytes = 64 << 10

// Span is a part of a file.
type Span struct{ Start, End int64 }

// CopyPart copies a part of a file; less, if the file has become shorter.
func CopyPart(ctx context.Context, to io.Writer, fd int, part Span) (int64, error) {
	buffer := make([]byte, min(BufferBytes, max(part.End-part.Start, 1)))
	n, err := io.CopyBuffer(to, &reader{ctx, fd, part}, buffer)
	return n, Ignoring(err, io.ErrUnexpectedEOF)
}

// ReadSpan returns a part of a file; less, if the file ends before.
func ReadSpan(ctx context.Context, fd int, part Span) ([]byte, error) {
	return ReadInto(ctx, fd, make([]byte, part.End-part.Start), part.Start)
}

// ReadInto fills a buffer from an offset of a file.
func ReadInto(ctx context.Context, fd int, buffer []byte, at int64) ([]byte, error) {
	n, err := io.ReadFull(&reader{ctx, fd, Span{at, at + int64(len(buffer))}}, buffer)
	return buffer[:n], Ignoring(err, io.ErrUnexpectedEOF)
}

type reader struct {
	ctx  context.Context
	fd   int
	part Span
}

// NewReader returns a reader of a part of a file. Where the file ends before, that is unexpected.
func NewReader(ctx context.Context, fd int, part Span) io.Reader { return &reader{ctx, fd, part} }

func (r *reader) Read(buffer []byte) (int, error) {
	if r.part.Start >= r.part.End {
		return 0, io.EOF
	}
	n, err := ReadAt(r.ctx, r.fd, buffer[:min(int64(len(buffer)), r.part.End-r.part.Start)], r.part.Start)
	r.part.Start += int64(n)
	if n == 0 && err == nil {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// ReadAt reads once. It repeats a call that a signal interrupted.
func ReadAt(ctx context.Context, fd int, buffer []byte, at int64) (int, error) {
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := unix.Pread(fd, buffer, at)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}
