package files

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
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
	// clockTick is longer than the time in which many file systems give two writes the same time stamp.
	clockTick = 50 * time.Millisecond
	// maxPage bounds what one Read returns, which is in memory.
	maxPage = 2 << 20
)

// maxScanBytes is how far into a file lines are looked for. Tests change it.
var maxScanBytes int64 = 4 << 30

// openFile opens a regular file for reading.
func (p *place) openFile() (fd int, err error) {
	if err := needFile(p.path, &p.st); err != nil {
		return -1, err
	}
	fd, p.st, err = openRegular(p.dir, p.name, p.path, new(sys.Devices))
	return fd, err
}

// openRegular opens a name that was a regular file. What was opened counts: it may be something else by now.
func openRegular(dir int, name, path string, devices *sys.Devices) (fd int, st unix.Stat_t, err error) {
	if fd, err = sys.OpenBeneath(dir, name, sys.ReadFlags, 0); err != nil {
		return -1, st, sys.FileError("open", path, err)
	}
	if st, err = lookAt(fd, path, path, devices); err != nil {
		return -1, st, sys.FileError("open", path, err)
	}
	if err = needFile(path, &st); err != nil {
		sys.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// lookAt describes what was opened. It closes what is the kernel's own.
func lookAt(fd int, asked, path string, devices *sys.Devices) (unix.Stat_t, error) {
	st, err := sys.Fstat(fd)
	if err == nil && devices.IsKernels(fd, &st) {
		err = sys.NewError(reason.PathNotAllowed, "%s is on a file system of the kernel's own, such as /proc: choose another path.", leadsTo(asked, path))
	}
	if err != nil {
		sys.Close(fd)
	}
	return st, err
}

// needFile refuses what isn't a regular file.
func needFile(path string, st *unix.Stat_t) error {
	switch kind := typeOf(st.Mode); {
	case kind == TypeDirectory:
		return sys.NewError(reason.IsDirectory, "%s is a directory: name a file in it, or use List.", sys.Quote(path))
	case kind != TypeFile:
		return sys.NewError(reason.PathNotAllowed, "%s is a %s: only regular files can be read and written.", sys.Quote(path), kind)
	}
	return nil
}

func (c *call) read(p *place) (Result, error) {
	switch unit := c.req.Unit; {
	case unit != "" && unit != spec.UnitLines && unit != spec.UnitBytes:
		return Result{}, sys.NewError(reason.InvalidRequest, "There is no unit %s: use Lines or Bytes.", sys.Quote(string(unit)))
	case c.req.Offset < 0 || c.req.Limit < 0:
		return Result{}, sys.NewError(reason.InvalidRequest, "The offset is %d and the limit %d: neither can be less than 0.",
			c.req.Offset, c.req.Limit)
	}
	fd, err := p.openFile()
	if err != nil {
		return Result{}, err
	}
	defer sys.Close(fd)
	result := Result{File: reason.File{Path: p.path}}
	var part sys.Span
	if readsLines(c.req) {
		part, err = c.linePart(&result, p.path, fd)
	} else {
		part = c.bytePart(&result, p.st.Size)
	}
	if err != nil {
		return Result{}, err
	}
	err = c.readPart(&result, fd, &p.st, part)
	return result, err
}

// readPart puts out a part, and finds out whether it is the whole file and was left alone meanwhile.
func (c *call) readPart(result *Result, fd int, before *unix.Stat_t, part sys.Span) error {
	start := time.Now()
	text, err := sys.ReadSpan(c.ctx, fd, part)
	if err != nil {
		return sys.FileError("read", result.Path, err)
	}
	result.Bytes = new(int64(len(text)))
	if result.Binary, err = isBinaryAt(c.ctx, fd, part.Start, text); err != nil {
		return sys.FileError("read", result.Path, err)
	}
	if result.Binary {
		result.Note = describeBinary(text, before.Size)
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
func (c *call) linePart(result *Result, path string, fd int) (part sys.Span, err error) {
	first, most := max(c.req.Offset, 1), c.rules.maxReadAtOnce()
	s := &lineScan{buffer: bufio.NewReaderSize(sys.NewReader(c.ctx, fd, sys.Span{End: math.MaxInt64}), sys.BufferBytes)}
	skipped, more, err := s.pass(first-1, maxScanBytes)
	isTooFar := more && skipped < first-1
	part.Start = s.at
	lines := int64(0)
	if err == nil && more && !isTooFar {
		lines, more, err = s.pass(cmp.Or(c.req.Limit, DefaultLines), part.Start+most)
	}
	part.End, result.Lines = s.at, &lines
	switch {
	case err != nil:
		return part, sys.FileError("read", path, err)
	case isTooFar:
		return part, sys.NewError(reason.FileTooLarge, "Lines are looked for in the first %d bytes of %s only: read it with unit Bytes.",
			maxScanBytes, sys.Quote(path))
	case more && lines == 0:
		head := sys.Span{Start: part.Start, End: part.Start + min(most, headBytes)}
		text, _ := sys.ReadSpan(c.ctx, fd, head)
		if isBinary, err := isBinaryAt(c.ctx, fd, head.Start, text); err == nil && isBinary {
			result.Truncated = true
			return head, nil
		}
		return part, sys.NewError(reason.FileTooLarge, "Line %d of %s is longer than the %d bytes that can be read at once: read it with "+
			"unit Bytes from offset %d.", first, sys.Quote(path), most, part.Start)
	case more:
		result.truncate(first + lines)
	case lines == 0:
		result.noteEnd(skipped, first, "line")
	}
	return part, nil
}

// lineScan finds the ends of lines.
type lineScan struct {
	buffer *bufio.Reader
	// at is the offset after the last line that was passed.
	at int64
}

// pass passes lines that end before an offset; the last of a file may have no end. It says how many, and whether there is more.
func (s *lineScan) pass(most, until int64) (passed int64, more bool, err error) {
	for end := s.at; passed < most; {
		part, err := s.buffer.ReadSlice('\n')
		end += int64(len(part))
		isEnd := errors.Is(err, io.ErrUnexpectedEOF)
		switch {
		case end > until:
			return passed, true, nil
		case err == nil, isEnd && end > s.at:
			s.at, passed = end, passed+1
		case isEnd:
			return passed, false, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return passed, false, err
		}
	}
	_, err = s.buffer.Peek(1)
	return passed, err == nil, sys.Ignoring(err, io.ErrUnexpectedEOF)
}
