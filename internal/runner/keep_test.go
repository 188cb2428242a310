package runner

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
)

// shownStreams are the streams of a command.
type shownStreams struct{ stdout, stderr kept.Output }

// keeping has a command's streams kept, and shown when it runs.
func keeping(t testing.TB, cmd *Command, bytes int64) <-chan shownStreams {
	t.Helper()
	shown := make(chan shownStreams, 1)
	cmd.KeepBytesPerStream = bytes
	cmd.OnStreams = func(stdout, stderr kept.Output) {
		t.Cleanup(stdout.Drop)
		t.Cleanup(stderr.Drop)
		shown <- shownStreams{stdout, stderr}
	}
	return shown
}

// hashed follows a stream to its end, and returns how many bytes it has and their hash.
func hashed(t testing.TB, ctx context.Context, r output.Reader) (n int64, sum string) {
	t.Helper()
	hash, p := sha256.New(), make([]byte, 64<<10)
	for {
		got, err := r.ReadAt(ctx, p, n)
		hash.Write(p[:got])
		n += int64(got)
		switch {
		case err == nil:
		case errors.Is(err, output.ErrNoMore):
			if err := r.Wait(ctx, n); err != nil {
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

func TestReadersOfARunningCommandGetAllThatItWritesToBothStreams(t *testing.T) {
	const size = 16 << 20
	cmd := bash(`(seq 1 100000000 | head -c 16777216) & (seq 1 3 100000000 | head -c 16777216 >&2) & wait`)
	shown := keeping(t, &cmd, size)
	var readers sync.WaitGroup
	var mu sync.Mutex
	sums := map[string]int{}
	readers.Go(func() {
		s := <-shown
		for _, stream := range []kept.Output{s.stdout, s.stderr, s.stdout, s.stderr} {
			readers.Go(func() {
				n, sum := hashed(t, t.Context(), stream)
				if n != size {
					t.Errorf("read %d bytes", n)
				}
				mu.Lock()
				defer mu.Unlock()
				sums[sum]++
			})
		}
	})
	o := runIt(t, t.Context(), cmd)
	readers.Wait()
	if o.Reason != result.Completed || o.Stdout.SHA256 == o.Stderr.SHA256 || sums[o.Stdout.SHA256] != 2 || sums[o.Stderr.SHA256] != 2 {
		t.Errorf("read %v: %s, %s, %s", sums, o.Stdout.SHA256, o.Stderr.SHA256, o.Reason)
	}
	if len(o.Stdout.Head) != 32<<10 || len(o.Stdout.Tail) != 32<<10 {
		t.Errorf("the outcome has %d and %d bytes", len(o.Stdout.Head), len(o.Stdout.Tail))
	}
}

func TestOutputIsReadWhileTheCommandRuns(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "go")
	cmd := bash(`mkfifo "$1"; echo begun; read < "$1"; echo ended >&2`)
	cmd.Argv = append(cmd.Argv, "bash", fifo)
	shown := keeping(t, &cmd, 8<<20)
	ended := make(chan result.Outcome)
	go func() { ended <- Run(t.Context(), cmd) }()
	s, p := <-shown, make([]byte, 100)
	if err := s.stdout.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if n, err := s.stdout.ReadAt(t.Context(), p, 0); err != nil || string(p[:n]) != "begun\n" || s.stdout.Info().Complete {
		t.Errorf("read %q, %v", p[:n], err)
	}
	if n, err := s.stderr.ReadAt(t.Context(), p, 0); n != 0 || !errors.Is(err, output.ErrNoMore) {
		t.Errorf("read %q, %v", p[:n], err)
	}
	if err := os.WriteFile(fifo, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	o := <-ended
	if n, err := s.stderr.ReadAt(t.Context(), p, 0); err != nil || string(p[:n]) != "ended\n" || s.stderr.Info().SHA256 != o.Stderr.SHA256 {
		t.Errorf("read %q, %v", p[:n], err)
	}
}

// A reader that never reads on, or never begins, holds up nobody: what a command writes is in the file.
func TestAReaderThatIsSlowDoesNotSlowTheCommand(t *testing.T) {
	cmd := bash(`head -c 20000000 /dev/zero`)
	shown := keeping(t, &cmd, 4<<20)
	o := runIt(t, t.Context(), cmd)
	s := <-shown
	want := output.Range{Start: 2 << 20, End: 20_000_000 - 2<<20}
	if info := s.stdout.Info(); o.Stdout.Bytes != 20_000_000 || info.Missing != want || info.SHA256 != o.Stdout.SHA256 {
		t.Errorf("got %+v of %d", info, o.Stdout.Bytes)
	}
}

func TestACommandReachesNoFileOfItsOutput(t *testing.T) {
	if os.Getenv("TMPDIR") != "" && os.Getenv("TMPDIR") != "/tmp" {
		t.Skip("the files of tests aren't where those of streams are")
	}
	cmd := bash(`head -c 1000000 /dev/zero; ls -la /proc/self/fd >&2; find /tmp -maxdepth 1 -size +900k -newermt '-1 minute' >&2`)
	shown := keeping(t, &cmd, 8<<20)
	o := runIt(t, t.Context(), cmd)
	s := <-shown
	if memory, disk := s.stdout.Shrink(); memory != 0 || disk != 1_000_000 {
		t.Fatalf("there is no file: %d, %d", memory, disk)
	}
	if said := text(o.Stderr); strings.Contains(said, "deleted") || !strings.Contains(said, "pipe:") {
		t.Errorf("the command sees %s", said)
	}
}

func TestACommandWithinItsLimitHasNoFile(t *testing.T) {
	cmd := bash(`head -c 65536 /dev/zero`)
	shown := keeping(t, &cmd, 8<<20)
	runIt(t, t.Context(), cmd)
	s := <-shown
	if memory, disk := s.stdout.Shrink(); memory != 65536 || disk != 0 {
		t.Errorf("it takes %d in memory and %d on disk", memory, disk)
	}
	if memory, disk := s.stderr.Shrink(); memory != 0 || disk != 0 {
		t.Errorf("nothing takes %d in memory and %d on disk", memory, disk)
	}
}

// BenchmarkKeeping runs a command that writes 64 MiB, with and without keeping them.
func BenchmarkKeeping(b *testing.B) {
	for name, keep := range map[string]int64{"none": 0, "default": 8 << 20, "all": 64 << 20} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(64 << 20)
			cmd := bash(`head -c 67108864 /dev/zero`)
			cmd.KeepBytesPerStream = keep
			cmd.OnStreams = func(stdout, stderr kept.Output) {
				b.Cleanup(stdout.Drop)
			}
			for b.Loop() {
				if o := Run(b.Context(), cmd); o.Stdout.Bytes != 64<<20 {
					b.Fatal(describe(o))
				}
			}
		})
	}
}
