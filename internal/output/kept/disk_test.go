package kept

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/output"
)

// diskOf is the disk of a stream that has one.
func diskOf(t *testing.T, s *Stream) *disk {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.disk == nil {
		t.Fatal("there is no disk")
	}
	return s.disk
}

// checkLost checks a stream whose disk is lost.
func checkLost(t *testing.T, s *Stream, size int64) {
	t.Helper()
	s.Finish(true, time.Minute)
	want := output.Info{Bytes: size, Complete: true, SHA256: sum(text(0, size)), Missing: output.Range{Start: 500, End: size - 500}, Lost: true}
	if got := s.Info(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := readAll(t, s, 0, always(300)); got != 1000 {
		t.Errorf("read %d bytes", got)
	}
}

func TestAFullDiskCostsTheFileOnlyAndIsGivenBack(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("a small file system can't be mounted: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	s := New(Limits{Memory: 1000, Disk: 8 << 20, Dir: dir})
	const size = 1 << 20
	write(t, s, text(0, 1<<16))
	d := diskOf(t, s)
	for at := int64(1 << 16); at < size; at += 1 << 16 {
		write(t, s, text(at, at+1<<16))
	}
	checkLost(t, s, size)
	<-d.ended
	if err := os.WriteFile(filepath.Join(dir, "the command's"), make([]byte, 200<<10), 0o600); err != nil {
		t.Errorf("the command has no room: %v", err)
	}
}

func TestADirectoryThatTakesNoFileCostsTheFileOnly(t *testing.T) {
	s := New(Limits{Memory: 1000, Disk: 8 << 20, Dir: filepath.Join(t.TempDir(), "missing")})
	for at := int64(0); at < 1<<20; at += 1 << 16 {
		write(t, s, text(at, at+1<<16))
	}
	checkLost(t, s, 1<<20)
}

// hung is a disk that takes some bytes, and then none until it is closed or let go.
type hung struct {
	left  int
	letGo chan struct{}
}

func (h *hung) WriteAt(p []byte, _ int64) (int, error) {
	if h.left -= len(p); h.left < 0 {
		<-h.letGo
		return 0, errors.New("gone")
	}
	return len(p), nil
}

func (h *hung) ReadAt([]byte, int64) (int, error) { return 0, errors.New("gone") }
func (h *hung) Close() error                      { return nil }

func TestAProcessWaitsForADiskThatHangsOnceAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// So much was written that more time would be left in all.
		h := &hung{left: 2 * minRate, letGo: make(chan struct{})}
		s := New(Limits{Memory: 1000, Disk: 64 << 20})
		s.create = func(string) (file, error) { return h, nil }
		began := time.Now()
		const size = 3 * minRate
		write(t, s, text(0, 1<<16))
		d := diskOf(t, s)
		for at := int64(1 << 16); at < size; at += 1 << 16 {
			write(t, s, text(at, at+1<<16))
			synctest.Wait()
		}
		if took := time.Since(began); took != stallLimit {
			t.Errorf("the process waited %s", took)
		}
		checkLost(t, s, size)
		close(h.letGo)
		<-d.ended
	})
}

func TestTheEndOfAStreamWaitsForADiskThatHangsOnceAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hung{letGo: make(chan struct{})}
		s := New(Limits{Memory: 1000, Disk: 64 << 20})
		s.create = func(string) (file, error) { return h, nil }
		write(t, s, text(0, 5000))
		d := diskOf(t, s)
		read := make(chan error)
		go func() {
			// It waits for the disk, which is given up.
			_, err := s.ReadAt(t.Context(), make([]byte, 1), 2000)
			read <- err
		}()
		synctest.Wait()
		began := time.Now()
		s.Finish(true, time.Second)
		if took := time.Since(began); took != time.Second {
			t.Errorf("the end waited %s", took)
		}
		var missing *output.MissingError
		if err := <-read; !errors.As(err, &missing) || missing.Next != 4500 {
			t.Errorf("got %v", err)
		}
		checkLost(t, s, 5000)
		close(h.letGo)
		<-d.ended
	})
}

// slow is a disk that takes a second for each write.
type slow struct{ hung }

func (*slow) WriteAt(p []byte, _ int64) (int, error) {
	time.Sleep(time.Second)
	return len(p), nil
}

func TestAProcessIsSlowedDownByASlowDiskWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Limits{Memory: 1000, Disk: 1 << 30})
		s.create = func(string) (file, error) { return &slow{}, nil }
		began := time.Now()
		const size = 64 << 20
		piece := text(0, 1<<16)
		write(t, s, piece)
		d := diskOf(t, s)
		for range size/len(piece) - 1 {
			write(t, s, piece)
		}
		if took := time.Since(began); took < stallLimit || took > stallLimit+size/minRate*time.Second {
			t.Errorf("the process waited %s", took)
		}
		s.Finish(true, time.Minute)
		if missing := s.Info().Missing; missing != (output.Range{Start: 500, End: size - 500}) {
			t.Errorf("missing is %+v", missing)
		}
		<-d.ended
	})
}

// overtaken is a file whose bytes are overwritten when they are about to be read.
type overtaken struct {
	file
	before func()
}

func (o *overtaken) ReadAt(p []byte, at int64) (int, error) {
	if before := o.before; before != nil {
		o.before = nil
		before()
	}
	return o.file.ReadAt(p, at)
}

func TestAReaderThatIsOvertakenGetsNoOtherBytes(t *testing.T) {
	o := &overtaken{}
	s := New(Limits{Memory: 10, Disk: 1000, Dir: t.TempDir()})
	defer s.Drop()
	s.create = func(dir string) (file, error) {
		f, err := CreateFile(dir)
		o.file = f
		return o, err
	}
	write(t, s, text(0, 1500))
	o.before = func() {
		write(t, s, text(1500, 1800))
		s.Finish(true, time.Minute)
	}
	var missing *output.MissingError
	if n, err := s.ReadAt(t.Context(), make([]byte, 100), 1200); n != 0 || !errors.As(err, &missing) || missing.Next != 1300 {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if got := readAll(t, s, 0, always(70)); got != 1000 {
		t.Errorf("read %d bytes", got)
	}
}

func TestMemoryIsBoundedWhateverTheSize(t *testing.T) {
	piece := text(0, 1<<16)
	heap := func() (inUse, allocated int64) {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc), int64(m.TotalAlloc)
	}
	before, allocatedBefore := heap()
	s := New(Limits{Memory: 64 << 10, Disk: 8 << 20, Dir: t.TempDir()})
	for range 64 << 20 / len(piece) {
		write(t, s, piece)
	}
	inUse, allocated := heap()
	if inUse-before > 64<<10+4*bufferSize || allocated-allocatedBefore > 2<<20 {
		t.Errorf("%d bytes of memory, and %d in all", inUse-before, allocated-allocatedBefore)
	}
	s.Finish(true, time.Minute)
	s.Drop()
}

func BenchmarkWrite(b *testing.B) {
	const size = 64 << 20
	piece := text(0, 1<<16)
	for _, keep := range []int64{0, 8 << 20, size} {
		b.Run("keep="+strconv.FormatInt(keep>>20, 10)+"MiB", func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				s := New(Limits{Memory: 64 << 10, Disk: keep, Dir: b.TempDir()})
				for range size / len(piece) {
					_, _ = s.Write(piece)
				}
				s.Finish(true, time.Minute)
				if missing := s.Info().Missing; keep >= size && missing != (output.Range{}) {
					b.Fatalf("missing %+v", missing)
				}
				s.Drop()
			}
		})
	}
}
