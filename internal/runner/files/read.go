package files

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/spec"
)

const (
	bufferBytes = 64 << 10
	// maxScanBytes is how far into a file lines are looked for.
	maxScanBytes = 4 << 30
	// clockTick is longer than the time in which many file systems give two writes the same time stamp.
	clockTick = 50 * time.Millisecond
)

// openFile opens a regular file for reading, and makes sure that it is the one that was found. Where it isn't, it looks
// again: others may replace the file often.
func (p *place) openFile() (int, *unix.Stat_t, error) {
	for range maxLooks {
		if err := p.needFile(); err != nil {
			return -1, nil, err
		}
		fd, err := openBeneath(p.dir, p.name, readFlags, 0)
		if err != nil {
			return -1, nil, fileError("open", p.path, err)
		}
		st, err := fstat(fd)
		if err == nil && isSame(&st, &p.st) && isRegular(&st) {
			return fd, &st, nil
		}
		closeAll(fd)
		if err == nil {
			err = p.lookAgain()
		}
		if err != nil {
			return -1, nil, fileError("open", p.path, err)
		}
	}
	return -1, nil, newError(FileChanged, "%s is replaced again and again while it is opened: try again.", quote(p.path))
}

// maxLooks bounds the attempts to open a file that others replace.
const maxLooks = 100

// lookAgain finds what has the name now.
func (p *place) lookAgain() error {
	fd, err := openBeneath(p.dir, p.name, pathFlags, 0)
	if err != nil {
		return err
	}
	st, err := fstat(fd)
	if err == nil && new(devices).isKernels(fd, &st) {
		err = kernelsError(p.path, p.path)
	}
	if err != nil {
		closeAll(fd)
		return err
	}
	closeAll(p.fd)
	p.fd, p.st = fd, st
	return nil
}

// needFile refuses what isn't a regular file.
func (p *place) needFile() error {
	switch kind := typeOf(p.st.Mode); {
	case kind == TypeDirectory:
		return newError(IsDirectory, "%s is a directory: name a file in it, or use List.", quote(p.path))
	case kind != TypeFile:
		return newError(PathNotAllowed, "%s is a %s: only regular files can be read and written.", quote(p.path), kind)
	}
	return nil
}

// span is a part of a file.
type span struct{ start, end int64 }

func (c *call) read() (Result, error) {
	unit := c.req.Unit
	if unit == "" {
		unit = spec.UnitLines
	}
	switch {
	case unit != spec.UnitLines && unit != spec.UnitBytes:
		return Result{}, newError(InvalidRequest, "There is no unit %s: use Lines or Bytes.", quote(string(unit)))
	case c.req.Offset < 0 || c.req.Limit < 0:
		return Result{}, newError(InvalidRequest, "The offset is %d and the limit %d: neither can be less than 0.",
			c.req.Offset, c.req.Limit)
	}
	p, err := c.resolve(c.req.Path, how{follow: true})
	if err != nil {
		return Result{}, err
	}
	defer p.close()
	fd, before, err := p.openFile()
	if err != nil {
		return Result{}, err
	}
	defer closeAll(fd)
	result := Result{Path: p.path}
	var part span
	if unit == spec.UnitLines {
		part, err = c.linePart(&result, p.path, fd)
	} else {
		part = c.bytePart(&result, before.Size)
	}
	if err != nil {
		return Result{}, err
	}
	err = c.readPart(&result, fd, before, part)
	return result, err
}

// readPart copies a part to stdout, and finds out whether it is the whole file and was left alone meanwhile.
func (c *call) readPart(result *Result, fd int, before *unix.Stat_t, part span) error {
	start, sum := time.Now(), sha256.New()
	to, page := c.stdout, &bytes.Buffer{}
	if c.rules.Hidden != nil {
		to = page
	}
	check := &textCheck{}
	n, err := copyPart(c.ctx, io.MultiWriter(to, sum, check), fd, part)
	result.Bytes = n
	if err != nil {
		return fileError("read", result.Path, err)
	}
	if readsLines(c.req) {
		result.noteBinary(check, before)
	}
	after, err := fstat(fd)
	if err != nil {
		return fileError("read", result.Path, err)
	}
	result.Changed = n < part.end-part.start || before.Size != after.Size || before.Mtim != after.Mtim
	recent := time.Unix(after.Ctim.Unix()).After(start.Add(-clockTick))
	if !result.Changed && (recent || before.Ctim != after.Ctim) {
		// The time stamps can't tell a write just now from one just before, and a new name from new content.
		again := sha256.New()
		if _, err := copyPart(c.ctx, again, fd, part); err != nil {
			return fileError("read", result.Path, err)
		}
		result.Changed = !bytes.Equal(sum.Sum(nil), again.Sum(nil))
	}
	isWhole := true
	if c.rules.Hidden != nil {
		if isWhole, err = c.showPart(result, fd, part.start, page.Bytes()); err != nil {
			return err
		}
	}
	if isWhole && part.start == 0 && !result.Truncated && !result.Changed {
		result.SHA256 = hexSum(sum)
	}
	return nil
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// bytePart returns the part of a Read of bytes.
func (c *call) bytePart(result *Result, size int64) span {
	limit := c.rules.maxReadAtOnce()
	if c.req.Limit > 0 {
		limit = min(limit, c.req.Limit)
	}
	start := min(c.req.Offset, size)
	if start == size {
		result.noteEnd(size, c.req.Offset, "byte")
	}
	// The difference can't overflow, the sum can.
	if size-start <= limit {
		return span{start, size}
	}
	result.truncate(start + limit)
	return span{start, start + limit}
}

// maxReadAtOnce is how much one Read returns.
func (c *compiledRules) maxReadAtOnce() int64 { return min(c.MaxReadBytes, c.MaxOutputBytes) }

func (r *Result) truncate(next int64) { r.Truncated, r.NextOffset = true, &next }

// linePart returns the part of a Read of lines. It looks for the ends of lines first, so that no line has to be held.
func (c *call) linePart(result *Result, path string, fd int) (span, error) {
	first, limit := max(c.req.Offset, 1), c.req.Limit
	if limit == 0 {
		limit = DefaultLines
	}
	most := c.rules.maxReadAtOnce()
	s := &lineScan{buffer: bufio.NewReaderSize(&reader{c.ctx, fd, span{0, math.MaxInt64}}, bufferBytes)}
	for line := int64(1); line < first; line++ {
		ok, err := s.next()
		if err == nil && !ok {
			result.noteEnd(line-1, first, "line")
		}
		if err != nil || !ok {
			return span{s.at, s.at}, s.fail(path, err)
		}
	}
	part := span{s.at, s.at}
	for lines := int64(0); ; lines++ {
		if lines < limit {
			s.stop = part.start + most
		}
		ok, err := s.next()
		switch {
		case err != nil:
			return part, s.fail(path, err)
		case !ok:
			if lines == 0 {
				result.noteEnd(first-1, first, "line")
			}
			return part, nil
		case lines == limit, s.at-part.start > most:
			if lines == 0 {
				return part, newError(FileTooLarge, "Line %d of %s is longer than the %d bytes that can be read at once: read it with "+
					"unit Bytes from offset %d.", first, quote(path), most, part.start)
			}
			result.truncate(first + lines)
			return part, nil
		}
		part.end = s.at
		result.Lines++
	}
}

// lineScan finds the ends of lines.
type lineScan struct {
	buffer *bufio.Reader
	// at is the offset after the last line.
	at int64
	// stop is where a line is too long; 0 is nowhere.
	stop int64
}

// next passes one line, the last of which may have no end. It returns false at the end of the file. Behind stop it passes
// a part of a line.
func (s *lineScan) next() (bool, error) {
	for start := s.at; ; {
		if s.at > maxScanBytes {
			return false, errScanTooLong
		}
		part, err := s.buffer.ReadSlice('\n')
		s.at += int64(len(part))
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return s.at > start, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return false, err
		case s.stop > 0 && s.at > s.stop:
			return true, nil
		}
	}
}

var errScanTooLong = fmt.Errorf("more than %d bytes before the line", int64(maxScanBytes))

func (s *lineScan) fail(path string, err error) error {
	if errors.Is(err, errScanTooLong) {
		return newError(FileTooLarge, "Lines are looked for in the first %d bytes of %s only: read it with unit Bytes.",
			int64(maxScanBytes), quote(path))
	}
	return fileError("read", path, err)
}

// copyPart copies a part of a file; less, if the file has become shorter.
func copyPart(ctx context.Context, to io.Writer, fd int, part span) (int64, error) {
	buffer := make([]byte, min(bufferBytes, max(part.end-part.start, 1)))
	n, err := io.CopyBuffer(to, &reader{ctx, fd, part}, buffer)
	return n, ignoring(err, io.ErrUnexpectedEOF)
}

// readSpan returns a part of a file; less, if the file ends before.
func readSpan(ctx context.Context, fd int, part span) ([]byte, error) {
	return readInto(ctx, fd, make([]byte, part.end-part.start), part.start)
}

// readInto fills a buffer from an offset of a file.
func readInto(ctx context.Context, fd int, buffer []byte, at int64) ([]byte, error) {
	n, err := io.ReadFull(&reader{ctx, fd, span{at, at + int64(len(buffer))}}, buffer)
	return buffer[:n], ignoring(err, io.ErrUnexpectedEOF)
}

// reader reads a part of a file. Where the file ends before, that is unexpected.
type reader struct {
	ctx  context.Context
	fd   int
	part span
}

func (r *reader) Read(buffer []byte) (int, error) {
	if r.part.start >= r.part.end {
		return 0, io.EOF
	}
	n, err := readAt(r.ctx, r.fd, buffer[:min(int64(len(buffer)), r.part.end-r.part.start)], r.part.start)
	r.part.start += int64(n)
	if n == 0 && err == nil {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// output is where results go. Its errors aren't taken for those of a file: they don't unwrap.
type output struct{ io.Writer }

func (o output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		err = fmt.Errorf("write the output: %w", &outputError{err})
	}
	return n, err
}

type outputError struct{ err error }

func (e *outputError) Error() string { return e.err.Error() }

// Is lets callers recognize their own error.
func (e *outputError) Is(target error) bool { return e.err == target }

// readAt reads once. It repeats a call that a signal interrupted.
func readAt(ctx context.Context, fd int, buffer []byte, at int64) (int, error) {
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
