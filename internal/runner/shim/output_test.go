package shim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
)

// streams are what is kept of a command.
type streams struct{ stdout, stderr kept.Output }

func keeping(t testing.TB, cmd runner.Command, bytes int64) (runner.Command, <-chan streams) {
	shown := make(chan streams, 1)
	cmd.KeepBytesPerStream = bytes
	cmd.OnStreams = func(stdout, stderr kept.Output) {
		t.Cleanup(stdout.Drop)
		t.Cleanup(stderr.Drop)
		shown <- streams{stdout, stderr}
	}
	return cmd, shown
}

// hashed follows a stream to its end.
func hashed(t testing.TB, r output.Reader) (n int64, sum string) {
	t.Helper()
	hash, p := sha256.New(), make([]byte, 64<<10)
	for {
		got, err := r.ReadAt(t.Context(), p, n)
		hash.Write(p[:got])
		n += int64(got)
		switch {
		case err == nil:
		case errors.Is(err, output.ErrNoMore):
			if err := r.Wait(t.Context(), n); err != nil {
				t.Error(err)
				return n, ""
			}
		case errors.Is(err, io.EOF):
			return n, hex.EncodeToString(hash.Sum(nil))
		default:
			t.Errorf("at %d: %v", n, err)
			return n, ""
		}
	}
}

// unnamed counts the descriptors of this process that are files without a name.
func unnamed(t testing.TB) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil && strings.HasSuffix(to, " (deleted)") {
			n++
		}
	}
	return n
}

func TestOutputOfACommandIsReadWhileItRunsAndAfterwards(t *testing.T) {
	b := newBench(t, 1)
	for range 3 {
		wait := b.fifo("wait")
		cmd, shown := keeping(t, bash(`echo begun; read <`+wait+`; echo ended >&2`), 8<<20)
		ended := b.start(t.Context(), cmd)
		s, p := <-shown, make([]byte, 100)
		if err := s.stdout.Wait(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		if n, err := s.stdout.ReadAt(t.Context(), p, 2); err != nil || string(p[:n]) != "gun\n" || s.stdout.Info() != (output.Info{Bytes: 6}) {
			t.Errorf("read %q, %v, of %+v", p[:n], err, s.stdout.Info())
		}
		if n, err := s.stderr.ReadAt(t.Context(), p, 0); n != 0 || !errors.Is(err, output.ErrNoMore) {
			t.Errorf("read %q, %v", p[:n], err)
		}
		impatient, cancel := context.WithCancel(t.Context())
		cancel()
		for range 1000 {
			if err := s.stderr.Wait(impatient, 0); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(wait, []byte("\n"), 0); err != nil {
			t.Fatal(err)
		}
		if n, _ := hashed(t, s.stderr); n != 6 {
			t.Errorf("read %d bytes", n)
		}
		o := <-ended
		for stream, is := range map[kept.Output]result.Stream{s.stdout: o.Stdout, s.stderr: o.Stderr} {
			if n, sum := hashed(t, stream); n != 6 || sum != is.SHA256 || stream.Info() != (output.Info{Bytes: 6, Complete: true, SHA256: sum}) {
				t.Errorf("after the end: %d bytes, %+v", n, stream.Info())
			}
		}
		os.Remove(wait)
	}
}

func TestLargeOutputOfCommandsAtATimeIsReadWholeAndGoesOnInThisProcess(t *testing.T) {
	const size = 3 << 20
	before := unnamed(t)
	b := newBench(t, 3)
	var commands sync.WaitGroup
	var all []kept.Output
	var mu sync.Mutex
	for _, step := range []string{"1", "3", "7"} {
		cmd, shown := keeping(t, bash(`(seq 1 `+step+` 100000000 | head -c 3145728) & (seq 2 `+step+` 100000000 | head -c 3145728 >&2) & wait`), size)
		commands.Go(func() {
			ended := b.start(t.Context(), cmd)
			s := <-shown
			mu.Lock()
			all = append(all, s.stdout, s.stderr)
			mu.Unlock()
			n, live := hashed(t, s.stdout)
			o := <-ended
			m, late := hashed(t, s.stderr)
			if n != size || m != size || live != o.Stdout.SHA256 || late != o.Stderr.SHA256 {
				t.Errorf("read %d and %d bytes, %s and %s, of %s", n, m, live, late, reason(o))
			}
			if memory, disk := s.stdout.Shrink(); memory != 0 || disk != size {
				t.Errorf("it takes %d in memory and %d on disk", memory, disk)
			}
		})
	}
	commands.Wait()
	if got := unnamed(t) - before; got != 6 {
		t.Errorf("%d streams are kept in files", got)
	}
	cmd, _ := keeping(t, bash(`ls -l /proc/self/fd`), size)
	if o := b.run(t.Context(), cmd); strings.Contains(text(o.Stdout), "deleted") || !strings.Contains(text(o.Stdout), "pipe:") {
		t.Errorf("the next command sees %s", text(o.Stdout))
	}
	for _, s := range all {
		s.Drop()
	}
	if unnamed(t) != before {
		t.Error("a file is left")
	}
}

func TestNobodyKeepsTheOutputOfACommandThatNobodyAsksFor(t *testing.T) {
	before := unnamed(t)
	b := newBench(t, 1)
	cmd := bash(`head -c 1000000 /dev/zero`)
	cmd.KeepBytesPerStream = 8 << 20
	if o := b.run(t.Context(), cmd); o.Stdout.Bytes != 1_000_000 || unnamed(t) != before {
		t.Errorf("got %s, and files are left", reason(o))
	}
}

func TestTheOutputOfALostShimIsKept(t *testing.T) {
	b := newBench(t, 1)
	cmd, shown := keeping(t, bash(`echo text; sleep 600`), 8<<20)
	ended := b.start(t.Context(), cmd)
	s := <-shown
	if err := s.stdout.Wait(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error)
	go func() { waiting <- s.stdout.Wait(context.Background(), 100) }()
	for _, pid := range b.shimsOf() {
		p := process{pid: pid}
		p.kill()
	}
	o := <-ended
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	if n, sum := hashed(t, s.stdout); n != 5 || sum != o.Stdout.SHA256 || text(o.Stdout) != "text\n" {
		t.Errorf("read %d bytes of %q: %s", n, text(o.Stdout), reason(o))
	}
}

// shimsOf are the process IDs of the shims that run commands.
func (b *bench) shimsOf() (pids []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.running {
		pids = append(pids, c.shim.pid)
	}
	return pids
}
