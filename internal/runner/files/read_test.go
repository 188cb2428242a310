package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	reason "toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/runner/redact"
	"toolcall.dev/operator/internal/spec"
)

func TestRead(t *testing.T) {
	long := strings.Repeat("x", 200)
	tests := []struct {
		name, content    string
		offset, limit    int64
		unit             spec.Unit
		maxRead          int64
		want             string
		lines            int
		truncated, whole bool
		next             int64
		reason           string
	}{
		{name: "a file whole", content: "a\nb\n", want: "a\nb\n", lines: 2, whole: true},
		{name: "an empty file", whole: true},
		{name: "a last line without an end", content: "a\nb", want: "a\nb", lines: 2, whole: true},
		{name: "line 1 by its number", content: "a\nb", offset: 1, limit: 1, want: "a\n", lines: 1, truncated: true, next: 2},
		{name: "lines in the middle", content: "a\nb\nc\nd\n", offset: 2, limit: 2, want: "b\nc\n", lines: 2, truncated: true, next: 4},
		{name: "the last lines", content: "a\nb\nc\n", offset: 2, limit: 2, want: "b\nc\n", lines: 2},
		{name: "behind the last line", content: "a\n", offset: 5},
		{name: "far behind the last line", content: "a\n", offset: math.MaxInt64, limit: math.MaxInt64},
		{name: "lines as they fit", content: "aaaa\nbbbb\ncccc\n", maxRead: 12, want: "aaaa\nbbbb\n", lines: 2, truncated: true, next: 3},
		{name: "lines that fit exactly", content: "aaaa\nbbbb\n", maxRead: 10, want: "aaaa\nbbbb\n", lines: 2, whole: true},
		{name: "a first line that doesn't fit", content: long + "\nb\n", maxRead: 100, reason: reason.FileTooLarge},
		{name: "a second line that doesn't fit", content: "a\n" + long, maxRead: 100, want: "a\n", lines: 1, truncated: true, next: 2},
		{name: "bytes", content: "abcdef", unit: spec.UnitBytes, offset: 2, limit: 3, want: "cde", truncated: true, next: 5},
		{name: "bytes to the end", content: "abcdef", unit: spec.UnitBytes, offset: 2, want: "cdef"},
		{name: "all bytes", content: "a\x00\xff", unit: spec.UnitBytes, want: "a\x00\xff", whole: true},
		{name: "binary lines", content: "\xff\x00\n\x01", want: "\xff\x00\n\x01", lines: 2, whole: true},
		{name: "bytes as they fit", content: "abcdef", unit: spec.UnitBytes, maxRead: 4, limit: 5, want: "abcd", truncated: true, next: 4},
		{name: "bytes behind the end", content: "abc", unit: spec.UnitBytes, offset: math.MaxInt64, limit: math.MaxInt64},
		{name: "a negative offset", offset: -1, reason: reason.InvalidRequest},
		{name: "a negative limit", limit: math.MinInt64, reason: reason.InvalidRequest},
		{name: "an unknown unit", unit: "Words", reason: reason.InvalidRequest},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.rules.MaxReadBytes = test.maxRead
			w.file("f", test.content)
			out, result, err := w.do(spec.File{Operation: spec.OperationRead, Path: "f", Offset: test.offset, Limit: test.limit, Unit: test.unit})
			if reasonOf(err) != test.reason {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			next := int64(0)
			if result.NextOffset != nil {
				next = *result.NextOffset
			}
			if out != test.want || number(result.Lines) != test.lines || result.Truncated != test.truncated || next != test.next ||
				*result.Bytes != int64(len(test.want)) || result.Changed || result.Path != w.root+"/f" {
				t.Errorf("got %q, %+v (next %d)", out, result, next)
			}
			if want := sumOf([]byte(test.content)); test.whole != (result.SHA256 == want) || !test.whole && result.SHA256 != "" {
				t.Errorf("checksum %q, whole: %v", result.SHA256, test.whole)
			}
		})
	}
}

func TestReadReturnsTwoThousandLinesWithoutALimit(t *testing.T) {
	w := newWorld(t)
	w.file("f", strings.Repeat("line\n", 2001))
	_, result := w.must(spec.File{Operation: spec.OperationRead, Path: "f"})
	if number(result.Lines) != 2000 || !result.Truncated || *result.NextOffset != 2001 {
		t.Errorf("%+v", result)
	}
}

// TestReadGoesOnWhereItWasCut reads files piece by piece.
func TestReadGoesOnWhereItWasCut(t *testing.T) {
	w := newWorld(t)
	w.rules.MaxReadBytes = sys.BufferBytes + 7
	var content bytes.Buffer
	for i := range 40000 {
		fmt.Fprintf(&content, "%d%s\n", i, strings.Repeat("é", i%17))
	}
	w.file("f", content.String())
	for _, unit := range []spec.Unit{spec.UnitLines, spec.UnitBytes} {
		var all strings.Builder
		for offset := int64(0); ; {
			out, result := w.must(spec.File{Operation: spec.OperationRead, Path: "f", Unit: unit, Offset: offset, Limit: 3333})
			all.WriteString(out)
			if !result.Truncated {
				break
			}
			if unit == spec.UnitLines && !strings.HasSuffix(out, "\n") {
				t.Fatal("cut within a line")
			}
			offset = *result.NextOffset
		}
		if all.String() != content.String() {
			t.Errorf("by %s: %d bytes, want %d", unit, all.Len(), content.Len())
		}
	}
}

func TestReadOfASparseFileIsBounded(t *testing.T) {
	w := newWorld(t)
	if err := os.Truncate(w.file("f", ""), 1<<40); err != nil {
		t.Skip(err)
	}
	w.rules.MaxReadBytes = 1 << 20
	_, result := w.must(spec.File{Operation: spec.OperationRead, Path: "f", Unit: spec.UnitBytes})
	if *result.Bytes != 1<<20 || *result.NextOffset != 1<<20 {
		t.Errorf("%+v", result)
	}
	if _, result = w.must(spec.File{Operation: spec.OperationRead, Path: "f"}); *result.Bytes != headBytes || !result.Binary {
		t.Errorf("in lines: %+v", result)
	}
	out, _, err := w.do(spec.File{Operation: spec.OperationGrep, Path: "f", Pattern: "x"})
	if err != nil || out != "" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestReadLooksForLinesInTheBeginningOfAFileOnly(t *testing.T) {
	whole := maxScanBytes
	t.Cleanup(func() { maxScanBytes = whole })
	maxScanBytes = 4
	w := newWorld(t)
	w.file("f", "a\nb\nccc\nd\n")
	if out, _ := w.must(spec.File{Operation: spec.OperationRead, Path: "f", Offset: 3}); out != "ccc\nd\n" {
		t.Errorf("got %q", out)
	}
	w.refused(spec.File{Operation: spec.OperationRead, Path: "f", Offset: 4}, reason.FileTooLarge, "first 4 bytes")
	w.file("short", "a\nb")
	if out, result := w.must(spec.File{Operation: spec.OperationRead, Path: "short", Offset: 9}); out != "" || result.Note == "" {
		t.Errorf("got %q, %+v", out, result)
	}
	// Without the bound this one would take minutes.
	if err := os.Truncate(w.file("f", ""), 1<<40); err != nil {
		t.Skip(err)
	}
	w.refused(spec.File{Operation: spec.OperationRead, Path: "f", Offset: 2}, reason.FileTooLarge, "first 4 bytes")
}

// meanwhile does something when a part of a file was read, and wasn't looked at again.
func (w *world) meanwhile(do func()) {
	w.rules.Hidden = func([]byte) []redact.Span { do(); return nil }
}

func TestReadSaysThatTheFileWasWrittenTo(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"appended to": func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString("more")
				f.Close()
			}
			return err
		},
		"overwritten with the same": func(path string) error {
			return os.Chtimes(path, time.Time{}, time.Unix(1, 0))
		},
		"cut": func(path string) error { return os.Truncate(path, 10) },
		"overwritten with as many bytes": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString("y")
				f.Close()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			path := w.file("f", strings.Repeat("x", 2*sys.BufferBytes))
			if err := os.Chtimes(path, time.Time{}, time.Unix(1000, 0)); err != nil {
				t.Fatal(err)
			}
			var changed error
			w.meanwhile(func() { changed = change(path) })
			_, result, err := Do(t.Context(), &w.rules, &spec.File{Operation: spec.OperationRead, Path: path, Unit: spec.UnitBytes})
			if changed != nil || err != nil || !result.Changed || result.SHA256 != "" {
				t.Errorf("%+v, %v", result, err)
			}
		})
	}
}

// TestReadComparesWhatTimeStampsDoNot takes the time stamp back to what it was, as a write in the same tick would leave it.
func TestReadComparesWhatTimeStampsDoNot(t *testing.T) {
	w := newWorld(t)
	fd, err := unix.Open(w.file("f", "xx"), unix.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var result Result
	// What comes before is taken from after the change, so that only the content differs.
	st, err := sys.Fstat(fd)
	if err != nil {
		t.Fatal(err)
	}
	w.meanwhile(func() {
		_, _ = unix.Pwrite(fd, []byte("yy"), 0)
		st, _ = sys.Fstat(fd)
	})
	w.rules.MaxOutputBytes = 100
	c := &call{rules: &compiledRules{Rules: w.rules}, ctx: t.Context(), req: &spec.File{}}
	if err := c.readPart(&result, fd, &st, sys.Span{End: 2}); err != nil || !result.Changed {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	path := w.file("f", strings.Repeat("x", 8*sys.BufferBytes))
	asked := 0
	ctx := &contextFunc{Context: t.Context(), err: func() error {
		if asked++; asked > 10 {
			return context.Canceled
		}
		return nil
	}}
	if out, _, err := Do(ctx, &w.rules, &spec.File{Operation: spec.OperationRead, Path: path}); !errors.Is(err, context.Canceled) || out != nil {
		t.Errorf("after %d questions: %d bytes, %v", asked, len(out), err)
	}
}

func TestOnlyRegularFilesAreRead(t *testing.T) {
	w := newWorld(t)
	if err := unix.Mkfifo(w.root+"/pipe", 0o666); err != nil {
		t.Fatal(err)
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	if err := unix.Bind(socket, &unix.SockaddrUnix{Name: w.root + "/socket"}); err != nil {
		t.Fatal(err)
	}
	names := []string{"pipe", "socket"}
	if unix.Mknod(w.root+"/device", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) == nil {
		names = append(names, "device")
	}
	for _, name := range names {
		for _, r := range []spec.File{
			{Operation: spec.OperationRead}, {Operation: spec.OperationWrite, Content: []byte("x")}, {Operation: spec.OperationGrep, Pattern: "x"},
			{Operation: spec.OperationEdit, OldString: "x"}, {Operation: spec.OperationMove, Destination: "new"},
		} {
			r.Path = name
			w.refused(r, reason.PathNotAllowed, name)
		}
		w.must(spec.File{Operation: spec.OperationStat, Path: name})
	}
	out, result := w.must(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: "x"})
	if out != "" || result.Skipped != (Skipped{}) {
		t.Errorf("%q, %+v", out, result)
	}
	for _, name := range names {
		w.must(spec.File{Operation: spec.OperationDelete, Path: name})
	}
}

// TestReadOfAPipeWakesNobody has a writer wait for a reader. One that was woken too early couldn't write.
func TestReadOfAPipeWakesNobody(t *testing.T) {
	w := newWorld(t)
	path := w.root + "/pipe"
	if err := unix.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
	var writer sync.WaitGroup
	writer.Go(func() {
		fd, err := unix.Open(path, unix.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(fd)
		if _, err := unix.Write(fd, []byte("x")); err != nil {
			t.Errorf("the writer was woken: %v", err)
		}
	})
	for range 2000 {
		w.refused(spec.File{Operation: spec.OperationRead, Path: "pipe"}, reason.PathNotAllowed, "Pipe")
		_, _ = w.must(spec.File{Operation: spec.OperationGrep, Path: ".", Pattern: "x"})
	}
	fd, err := unix.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	writer.Wait()
}

// TestMemoryIsBounded reads and searches much more than it may hold.
func TestMemoryIsBounded(t *testing.T) {
	w := newWorld(t)
	w.rules.MaxReadBytes = 1 << 30
	line := strings.Repeat("x", 99) + "\n"
	w.file("lines", strings.Repeat(line, 640<<10))
	w.file("long", strings.Repeat("y", 64<<20))
	w.file("short", "a\n")
	for _, r := range []spec.File{
		{Operation: spec.OperationRead, Path: "lines", Limit: math.MaxInt64},
		{Operation: spec.OperationRead, Path: "lines", Offset: 600 << 10},
		{Operation: spec.OperationRead, Path: "long"},
		{Operation: spec.OperationRead, Path: "long", Unit: spec.UnitBytes},
		{Operation: spec.OperationGrep, Path: ".", Pattern: "x", MaxResults: 10},
		{Operation: spec.OperationGrep, Path: ".", Pattern: "z|y$"},
		{Operation: spec.OperationGrep, Path: "short", Pattern: strings.Repeat("(a?)", 1000)},
		{Operation: spec.OperationGrep, Path: "short", Pattern: strings.Repeat(`(\pL?){1000}`, 200)},
		{Operation: spec.OperationGrep, Path: "short", Pattern: strings.Repeat("(?:a?){1000}", 680)},
		{Operation: spec.OperationGrep, Path: "short", Pattern: strings.Repeat("(?:(a)|(b)){50}", 100)},
		{Operation: spec.OperationGrep, Path: "short", Pattern: strings.Repeat(`\pL`, 300)},
		{Operation: spec.OperationGlob, Path: ".", Pattern: strings.Repeat("*?", 4000)},
	} {
		r.WorkingDir = w.root
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		// What is too large may be refused instead.
		if _, _, err := Do(t.Context(), &w.rules, &r); err != nil && reasonOf(err) != reason.InvalidPattern && reasonOf(err) != reason.FileTooLarge {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		// What was written just before is read twice.
		if used := after.TotalAlloc - before.TotalAlloc; used > 2*maxPage+1<<20 {
			t.Errorf("%+v allocated %d bytes", r, used)
		}
	}
}
