package files

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"time"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/spec"
)

const (
	// maxScanBytes is how far into a file lines are looked for.
	maxScanBytes = 4 << 30
	// clockTick is longer than the time in which many file systems give two writes the same time stamp.
	clockTick = 50 * time.Millisecond
	// maxPage bounds what one Read returns, which is in memory.
	maxPage = 2 << 20
)

// openFile opens a regular file for reading, and makes sure that it is the one that was found. Where it isn't, it looks
// again: others may replace the file often.
func (p *place) openFile() (int, *unix.Stat_t, error) {
	for range maxLooks {
		if err := p.needFile(); err != nil {
			return -1, nil, err
		}
		fd, err := sys.OpenBeneath(p.dir, p.name, sys.ReadFlags, 0)
		if err != nil {
			return -1, nil, sys.FileError("open", p.path, err)
		}
		st, err := sys.Fstat(fd)
		if err == nil && sys.IsSame(&st, &p.st) && sys.IsRegular(&st) {
			return fd, &st, nil
		}
		sys.Close(fd)
		if err == nil {
			err = p.lookAgain()
		}
		if err != nil {
			return -1, nil, sys.FileError("open", p.path, err)
		}
	}
	return -1, nil, sys.NewError(reason.FileChanged, "%s is replaced again and again while it is opened: try again.", sys.Quote(p.path))
}

// maxLooks bounds the attempts to open a file that others replace.
const maxLooks = 100

// lookAgain finds what has the name now.
func (p *place) lookAgain() error {
	fd, err := sys.OpenBeneath(p.dir, p.name, sys.PathFlags, 0)
	if err != nil {
		return err
	}
	st, err := sys.Fstat(fd)
	if err == nil && new(sys.Devices).IsKernels(fd, &st) {
		err = kernelsError(p.path, p.path)
	}
	if err != nil {
		sys.Close(fd)
		return err
	}
	sys.Close(p.fd)
	p.fd, p.st = fd, st
	return nil
}

// needFile refuses what isn't a regular file.
func (p *place) needFile() error {
	switch kind := typeOf(p.st.Mode); {
	case kind == TypeDirectory:
		return sys.NewError(reason.IsDirectory, "%s is a directory: name a file in it, or use List.", sys.Quote(p.path))
	case kind != TypeFile:
		return sys.NewError(reason.PathNotAllowed, "%s is a %s: only regular files can be read and written.", sys.Quote(p.path), kind)
	}
	return nil
}

func (c *call) read() (Result, error) {
	switch unit := c.req.Unit; {
	case unit != "" && unit != spec.UnitLines && unit != spec.UnitBytes:
		return Result{}, sys.NewError(reason.InvalidRequest, "There is no unit %s: use Lines or Bytes.", sys.Quote(string(unit)))
	case c.req.Offset < 0 || c.req.Limit < 0:
		return Result{}, sys.NewError(reason.InvalidRequest, "The offset is %d and the limit %d: neither can be less than 0.",
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
	defer sys.Close(fd)
	result := Result{Path: p.path}
	var part sys.Span
	if readsLines(c.req) {
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

// readPart writes a part to stdout, and finds out whether it is the whole file and was left alone meanwhile.
func (c *call) readPart(result *Result, fd int, before *unix.Stat_t, part sys.Span) error {
	start := time.Now()
	text, err := sys.ReadSpan(c.ctx, fd, part)
	if err != nil {
		return sys.FileError("read", result.Path, err)
	}
	if result.Bytes = int64(len(text)); readsLines(c.req) && isBinary(text) {
		result.Binary, result.Note = true, describeBinary(text, before.Size)
	}
	isWhole, err := c.showPart(result, fd, part.Start, text)
	if err != nil {
		return err
	}
	after, err := sys.Fstat(fd)
	if err != nil {
		return sys.FileError("read", result.Path, err)
	}
	result.Changed = int64(len(text)) < part.End-part.Start || before.Size != after.Size || before.Mtim != after.Mtim
	recent := time.Unix(after.Ctim.Unix()).After(start.Add(-clockTick))
	if !result.Changed && (recent || before.Ctim != after.Ctim) {
		// The time stamps can't tell a write just now from one just before, and a new name from new content.
		again, err := sys.ReadSpan(c.ctx, fd, part)
		if err != nil {
			return sys.FileError("read", result.Path, err)
		}
		result.Changed = !bytes.Equal(text, again)
	}
	if isWhole && part.Start == 0 && !result.Truncated && !result.Changed {
		result.SHA256 = sumOf(text)
	}
	return nil
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// bytePart returns the part of a Read of bytes.
func (c *call) bytePart(result *Result, size int64) sys.Span {
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
		return sys.Span{Start: start, End: size}
	}
	result.truncate(start + limit)
	return sys.Span{Start: start, End: start + limit}
}

// maxReadAtOnce is how much one Read returns.
func (c *compiledRules) maxReadAtOnce() int64 { return min(c.MaxReadBytes, c.MaxOutputBytes, maxPage) }

func (r *Result) truncate(next int64) { r.Truncated, r.NextOffset = true, &next }

// linePart returns the part of a Read of lines. It looks for the ends of lines first, so that no line has to be held.
func (c *call) linePart(result *Result, path string, fd int) (sys.Span, error) {
	first, limit := max(c.req.Offset, 1), c.req.Limit
	if limit == 0 {
		limit = DefaultLines
	}
	most := c.rules.maxReadAtOnce()
	s := &lineScan{buffer: bufio.NewReaderSize(sys.NewReader(c.ctx, fd, sys.Span{End: math.MaxInt64}), sys.BufferBytes)}
	for line := int64(1); line < first; line++ {
		ok, err := s.next()
		if err == nil && !ok {
			result.noteEnd(line-1, first, "line")
		}
		if err != nil || !ok {
			return sys.Span{Start: s.at, End: s.at}, s.fail(path, err)
		}
	}
	part := sys.Span{Start: s.at, End: s.at}
	for lines := int64(0); ; lines++ {
		if lines < limit {
			s.stop = part.Start + most
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
		case lines == limit, s.at-part.Start > most:
			if lines == 0 {
				return part, sys.NewError(reason.FileTooLarge, "Line %d of %s is longer than the %d bytes that can be read at once: read it with "+
					"unit Bytes from offset %d.", first, sys.Quote(path), most, part.Start)
			}
			result.truncate(first + lines)
			return part, nil
		}
		part.End = s.at
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
		return sys.NewError(reason.FileTooLarge, "Lines are looked for in the first %d bytes of %s only: read it with unit Bytes.",
			int64(maxScanBytes), sys.Quote(path))
	}
	return sys.FileError("read", path, err)
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
