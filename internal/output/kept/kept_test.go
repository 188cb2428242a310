package kept

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/output"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// text is a part of an endless stream in which each place differs from those around it.
func text(from, to int64) []byte {
	p := make([]byte, 0, max(to-from, 0))
	for i := from; i < to; i++ {
		p = append(p, byte(i)^byte(i>>8)*31^byte(i>>16)*17)
	}
	return p
}

func sum(p []byte) string {
	s := sha256.Sum256(p)
	return hex.EncodeToString(s[:])
}

func write(t testing.TB, s *Stream, p []byte) {
	t.Helper()
	if n, err := s.Write(p); n != len(p) || err != nil {
		t.Fatalf("wrote %d of %d bytes: %v", n, len(p), err)
	}
}

// wanted is what must be missing of a stream that a healthy disk keeps.
func wanted(l Limits, size int64) output.Range {
	keep := max(l.Disk, int64(l.Memory))
	if size <= keep {
		return output.Range{}
	}
	return output.Range{Start: keep - keep/2, End: size - keep/2}
}

// readAll reads from an offset on, over what is missing, and checks each byte. It returns how many there were.
func readAll(t testing.TB, r output.Reader, offset int64, sizes func() int) (read int64) {
	t.Helper()
	for {
		p := make([]byte, sizes())
		n, err := r.ReadAt(t.Context(), p, offset)
		var missing *output.MissingError
		switch {
		case err == nil && n > 0:
			if !bytes.Equal(p[:n], text(offset, offset+int64(n))) {
				t.Fatalf("other bytes at %d", offset)
			}
			offset, read = offset+int64(n), read+int64(n)
		case errors.As(err, &missing):
			if missing.Next <= offset {
				t.Fatalf("at %d it goes on at %d", offset, missing.Next)
			}
			offset = missing.Next
		case errors.Is(err, output.ErrNoMore):
			if err := r.Wait(t.Context(), offset); err != nil {
				t.Fatal(err)
			}
		case errors.Is(err, io.EOF):
			if info := r.Info(); offset != info.Bytes || !info.Complete {
				t.Fatalf("the end is at %d of %+v", offset, info)
			}
			return read
		default:
			t.Fatalf("at %d: %d bytes, %v", offset, n, err)
		}
	}
}

func always(n int) func() int { return func() int { return n } }

// files are the descriptors of this process that are files without a name.
func files(t testing.TB) (list []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil && strings.HasSuffix(to, " (deleted)") {
			list = append(list, to)
		}
	}
	return list
}

func TestAStreamWithinItsMemoryCostsNoFileAndNoGoroutine(t *testing.T) {
	before, goroutines := len(files(t)), runtime.NumGoroutine()
	s := New(Limits{Memory: 1000, Disk: 1 << 20, Dir: t.TempDir()})
	for i := range int64(10) {
		write(t, s, text(100*i, 100*i+100))
	}
	if s.disk != nil || len(files(t)) != before || runtime.NumGoroutine() > goroutines {
		t.Error("there is a file, or a goroutine")
	}
	s.Finish(true, time.Minute)
	if got := readAll(t, s, 0, always(7)); got != 1000 {
		t.Errorf("read %d bytes", got)
	}
	if info := s.Info(); info != (output.Info{Bytes: 1000, Complete: true, SHA256: sum(text(0, 1000))}) {
		t.Errorf("got %+v", info)
	}
}

func TestAStreamIsKeptWholeOrItsFirstAndLastHalf(t *testing.T) {
	for _, l := range []Limits{
		{Memory: 0, Disk: 0}, {Memory: 9, Disk: 0}, {Memory: 0, Disk: 1}, {Memory: 0, Disk: 2}, {Memory: 1, Disk: 3}, {Memory: 10, Disk: 5},
		{Memory: 10, Disk: 10}, {Memory: 10, Disk: 11}, {Memory: 64, Disk: 1001}, {Memory: 1000, Disk: 300_000}, {Memory: 300_000, Disk: 900_000},
	} {
		for _, size := range []int64{0, 1, 5, 10, 11, 12, 500, 1001, 1002, 5000, 300_001, 1_000_000} {
			l.Dir = t.TempDir()
			random := rand.New(rand.NewPCG(uint64(size), uint64(l.Memory)))
			s := New(l)
			for at := int64(0); at < size; {
				next := min(size, at+1+random.Int64N(1+random.Int64N(100_000)))
				write(t, s, text(at, next))
				at = next
				if random.IntN(8) == 0 {
					checkNow(t, s, random)
				}
			}
			s.Finish(true, time.Minute)
			want := output.Info{Bytes: size, Complete: true, SHA256: sum(text(0, size)), Missing: wanted(l, size)}
			if l.Disk == 1 {
				// It has no halves.
				want.Missing = output.Range{End: size}
			}
			if want.Missing.Start == want.Missing.End {
				want.Missing = output.Range{}
			}
			if got := s.Info(); got != want {
				t.Errorf("%+v, of %d bytes: got %+v, want %+v", l, size, got, want)
			}
			if got := readAll(t, s, 0, func() int { return 1 + random.IntN(100_000) }); got != size-(want.Missing.End-want.Missing.Start) {
				t.Errorf("%+v, of %d bytes: read %d", l, size, got)
			}
			s.Drop()
		}
	}
}

// checkNow reads at one place while the stream grows.
func checkNow(t *testing.T, s *Stream, random *rand.Rand) {
	t.Helper()
	info := s.Info()
	if info.Bytes == 0 {
		return
	}
	offset := random.Int64N(info.Bytes)
	p := make([]byte, 1+random.IntN(1000))
	n, err := s.ReadAt(t.Context(), p, offset)
	var missing *output.MissingError
	switch {
	case errors.As(err, &missing):
		if offset < info.Missing.Start || offset >= info.Missing.End || missing.Next != info.Missing.End {
			t.Fatalf("at %d of %+v: %v", offset, info, err)
		}
	case err != nil || n == 0 || !bytes.Equal(p[:n], text(offset, offset+int64(n))):
		t.Fatalf("at %d of %+v: %d bytes, %v", offset, info, n, err)
	}
}

func FuzzStream(f *testing.F) {
	f.Add(10, 100, []byte{50, 100, 30, 0, 255, 1})
	f.Add(0, 2, []byte{1, 1, 1})
	f.Fuzz(func(t *testing.T, memory, disk int, pieces []byte) {
		l := Limits{Memory: abs(memory) % 500, Disk: int64(abs(disk) % 2000), Dir: t.TempDir()}
		s := New(l)
		random := rand.New(rand.NewPCG(uint64(len(pieces)), 1))
		var size int64
		for _, piece := range pieces {
			next := size + int64(piece)*3
			write(t, s, text(size, next))
			size = next
			checkNow(t, s, random)
		}
		s.Finish(false, time.Minute)
		if info := s.Info(); info.Bytes != size || info.SHA256 != "" || !info.Complete {
			t.Errorf("got %+v", info)
		}
		readAll(t, s, 0, func() int { return 1 + random.IntN(700) })
		s.Drop()
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}

func TestReadersOfAStreamThatGrowsGetEachByteInOrder(t *testing.T) {
	for name, l := range map[string]Limits{
		"all of it":       {Memory: 1000, Disk: 4 << 20, Dir: t.TempDir()},
		"a small ring":    {Memory: 1000, Disk: 50_000, Dir: t.TempDir()},
		"the memory only": {Memory: 5000},
	} {
		t.Run(name, func(t *testing.T) {
			const size = 3 << 20
			s := New(l)
			var readers sync.WaitGroup
			for i := range 8 {
				readers.Go(func() {
					random := rand.New(rand.NewPCG(uint64(i), 3))
					got := readAll(t, s, 0, func() int { return 1 + random.IntN(20_000) })
					if l.Disk >= size && got != size {
						t.Errorf("read %d bytes", got)
					}
				})
			}
			random := rand.New(rand.NewPCG(1, 2))
			for at := int64(0); at < size; {
				next := min(size, at+1+random.Int64N(3000))
				write(t, s, text(at, next))
				at = next
			}
			s.Finish(true, time.Minute)
			readers.Wait()
			s.Drop()
		})
	}
}

func TestWaitEndsWithMoreWithTheEndAndWithItsContext(t *testing.T) {
	s := New(Limits{Memory: 10})
	write(t, s, text(0, 5))
	if err := s.Wait(t.Context(), 4); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Wait(ctx, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	waited := make(chan error)
	go func() { waited <- s.Wait(t.Context(), 7) }()
	write(t, s, text(5, 8))
	if err := <-waited; err != nil {
		t.Error(err)
	}
	go func() { waited <- s.Wait(t.Context(), 100) }()
	s.Finish(true, time.Minute)
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if _, err := s.ReadAt(t.Context(), make([]byte, 1), -1); err == nil {
		t.Error("there is something before the start")
	}
}

func TestADroppedStreamGivesItsFileBack(t *testing.T) {
	before := len(files(t))
	s := New(Limits{Memory: 10, Disk: 1 << 20, Dir: t.TempDir()})
	write(t, s, text(0, 100_000))
	readAt(t, s, 50_000)
	waiting := make(chan error)
	go func() { waiting <- s.Wait(context.Background(), 1<<30) }()
	d := diskOf(t, s)
	s.Drop()
	<-d.ended
	if len(files(t)) != before {
		t.Error("the file is still there")
	}
	if err := <-waiting; !errors.Is(err, output.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if _, err := s.ReadAt(t.Context(), make([]byte, 1), 0); !errors.Is(err, output.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	write(t, s, text(100_000, 200_000))
	s.Finish(true, time.Minute)
	if info := s.Info(); info.SHA256 != sum(text(0, 200_000)) {
		t.Errorf("got %+v", info)
	}
	s.Drop()
}

func readAt(t *testing.T, s *Stream, offset int64) {
	t.Helper()
	p := make([]byte, 100)
	if n, err := s.ReadAt(t.Context(), p, offset); err != nil || !bytes.Equal(p[:n], text(offset, offset+int64(n))) {
		t.Fatalf("at %d: %d bytes, %v", offset, n, err)
	}
}

func TestTheFileHasNoNameAndIsNobodysToOpen(t *testing.T) {
	for name, make := range map[string]func(string) (*os.File, error){"without a name": CreateFile, "whose name is gone": createAndUnlink} {
		dir := t.TempDir()
		f, err := make(dir)
		if err != nil {
			t.Fatal(name, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 || st.Nlink != 0 || st.Mode&0o7777 != 0 {
			t.Errorf("a file %s has mode %o, %d names, flags %x, %v", name, st.Mode, st.Nlink, flags, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("the directory has %v, %v", entries, err)
		}
		if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, filepath.Join(dir, "name"), unix.AT_SYMLINK_FOLLOW); err == nil {
			t.Errorf("a file %s can be given one", name)
		}
		f.Close()
	}
}
