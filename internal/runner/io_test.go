package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"toolcall.dev/operator/internal/result"
)

func TestStdin(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 10<<20/16)
	for name, c := range map[string]struct {
		stdin []byte
		cmd   Command
		want  want
	}{
		"is fed, then closed":            {[]byte("one\ntwo"), program("cat"), completed("one\ntwo", "")},
		"may be binary":                  {[]byte{0, 'a', 0, '\n'}, program("wc", "-c"), completed("4\n", "")},
		"is empty when not given":        {nil, program("cat"), completed("", "")},
		"is empty when it's empty":       {[]byte{}, bash("read x; echo $?"), completed("1\n", "")},
		"large and read":                 {large, program("wc", "-c"), completed("10485760\n", "")},
		"large and not read":             {large, bash("echo done"), completed("done\n", "")},
		"large and read a little":        {large, program("head", "-c", "4"), completed("0123", "")},
		"large and closed by the reader": {large, bash("exec <&-; echo done"), completed("done\n", "")},
	} {
		t.Run(name, func(t *testing.T) {
			c.cmd.Stdin = c.stdin
			c.want.check(t, runIt(t, t.Context(), c.cmd))
		})
	}
}

func TestLargeStdinThatABlockedProcessNeverReads(t *testing.T) {
	cmd := program("sleep", "infinity")
	cmd.Stdin = make([]byte, 10<<20)
	cmd.TimeoutMilliseconds = 300
	want{reason: result.TimedOut, signal: "SIGTERM"}.check(t, runIt(t, t.Context(), cmd))
}

func TestAFloodIsMeasuredWholeAndKeptInPart(t *testing.T) {
	const size = 100 << 20
	cmd := helperCommand(t, "flood", "104857600")
	cmd.MaxBytesPerStream = 1000
	o := runIt(t, t.Context(), cmd)
	h := sha256.New()
	chunk := []byte(strings.Repeat("0123456789abcdef0123456789abcde\n", 4096))
	for range size / len(chunk) {
		h.Write(chunk)
	}
	want := result.Stream{Bytes: size, SHA256: hex.EncodeToString(h.Sum(nil)), Head: chunk[:500], Tail: chunk[len(chunk)-500:]}
	if o.Reason != result.Completed || o.Stdout.Bytes != size || o.Stdout.SHA256 != want.SHA256 ||
		!bytes.Equal(o.Stdout.Head, want.Head) || !bytes.Equal(o.Stdout.Tail, want.Tail) {
		t.Errorf("%s %d %s %q %q", o.Reason, o.Stdout.Bytes, o.Stdout.SHA256, o.Stdout.Head, o.Stdout.Tail)
	}
}

func TestAnEndlessFloodIsStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := bash("trap '' TERM; yes & yes >&2 & wait; wait")
	cmd.Grace = 200 * time.Millisecond
	var both sync.WaitGroup
	both.Add(2)
	cmd.Stdout, cmd.Stderr = &firstWrite{done: both.Done}, &firstWrite{done: both.Done}
	go func() { both.Wait(); cancel() }()
	o := runIt(t, ctx, cmd)
	if o.Reason != result.CancelRequested || o.Stdout.Bytes == 0 || o.Stderr.Bytes == 0 || o.Stdout.SHA256 == "" {
		t.Errorf("%s", describe(o))
	}
}

// firstWrite calls done at the first write.
type firstWrite struct {
	once sync.Once
	done func()
}

func (w *firstWrite) Write(p []byte) (int, error) {
	w.once.Do(w.done)
	return len(p), nil
}

func TestBinaryOutput(t *testing.T) {
	o := runIt(t, t.Context(), bash(`printf 'a\xff\x00\xe2\x82'`))
	if !o.Stdout.InvalidUTF8 || !bytes.Equal(append(o.Stdout.Head, o.Stdout.Tail...), []byte("a\xff\x00\xe2\x82")) {
		t.Errorf("%+v", o.Stdout)
	}
	if got := text(o.Stdout); got != "a\uFFFD\x00\uFFFD" {
		t.Errorf("%q", got)
	}
}

// failingWriter takes some writes, then fails.
type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(p), nil
}

func TestALiveWriterThatFailsDoesntDisturb(t *testing.T) {
	cmd := helperCommand(t, "flood", "10485760")
	cmd.Stdout = &failingWriter{left: 3}
	o := runIt(t, t.Context(), cmd)
	if o.Reason != result.Completed || o.Stdout.Bytes != 10<<20 {
		t.Errorf("%s", describe(o))
	}
}

// stuckWriter takes nothing until it is released.
type stuckWriter struct{ release chan struct{} }

func (w *stuckWriter) Write(p []byte) (int, error) {
	<-w.release
	return len(p), nil
}

func TestALiveWriterThatHangsDoesntDisturb(t *testing.T) {
	stuck := &stuckWriter{make(chan struct{})}
	defer close(stuck.release)
	cmd := helperCommand(t, "flood", "20971520")
	cmd.Stdout, cmd.Stderr = stuck, stuck
	o := runIt(t, t.Context(), cmd)
	if o.Reason != result.Completed || o.Stdout.Bytes != 20<<20 {
		t.Errorf("%s", describe(o))
	}
}

func TestTheLiveWritersSeeEverything(t *testing.T) {
	var stdout, stderr bytes.Buffer
	cmd := bash("seq 100000; seq 200000 >&2")
	cmd.Stdout, cmd.Stderr, cmd.MaxBytesPerStream = &stdout, &stderr, 100
	o := runIt(t, t.Context(), cmd)
	for s, buf := range map[*result.Stream]*bytes.Buffer{&o.Stdout: &stdout, &o.Stderr: &stderr} {
		sum := sha256.Sum256(buf.Bytes())
		if s.Bytes != int64(buf.Len()) || s.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("live %d bytes, captured %d", buf.Len(), s.Bytes)
		}
	}
}

func TestNoDescriptorLeaksIntoTheCommand(t *testing.T) {
	// One that a careless parent left open to us.
	var p [2]int
	if err := pipeWithoutCloexec(&p); err != nil {
		t.Fatal(err)
	}
	defer closeBoth(p)
	completed("0\n1\n2\n", "").check(t, runIt(t, t.Context(), helperCommand(t, "fds")))
	cmd := helperCommand(t, "fds")
	cmd.DenyNetwork, cmd.Stdin = true, []byte("x")
	completed("0\n1\n2\n", "").check(t, runIt(t, t.Context(), cmd))
}

func TestStreamsCanBeOpenedByName(t *testing.T) {
	completed("out\n", "err\n").check(t, runIt(t, t.Context(), bash("echo out >/dev/stdout; echo err >/dev/stderr")))
}

func TestStreamsThatAreClosedEarly(t *testing.T) {
	out := "out\n"
	want{reason: result.NonZeroExit, exit: result.Exit(3), stdout: &out}.check(t,
		runIt(t, t.Context(), bash("echo out; exec >&- 2>&- <&-; sleep 0.2; exit 3")))
}

// holder opens a process's stdout as soon as the process has written its number, and then lets it go on.
type holder struct {
	flag string
	held *os.File
}

func (h *holder) Write(p []byte) (int, error) {
	if pid := strings.TrimSpace(string(p)); h.held == nil {
		h.held, _ = os.OpenFile("/proc/"+pid+"/fd/1", os.O_WRONLY, 0)
		_ = os.WriteFile(h.flag, nil, 0o600)
	}
	return len(p), nil
}

func TestAPipeThatSomebodyElseHoldsIsNotWaitedFor(t *testing.T) {
	h := &holder{flag: publicDir(t) + "/flag"}
	cmd := bash("echo $$; while [ ! -e " + h.flag + " ]; do sleep 0.01; done; echo end")
	cmd.Stdout = h
	o := runIt(t, t.Context(), cmd)
	if h.held == nil {
		t.Fatal("the pipe couldn't be held")
	}
	defer h.held.Close()
	if !strings.HasSuffix(text(o.Stdout), "\nend\n") || o.Reason != result.Completed || o.Stdout.SHA256 != "" || o.Stderr.SHA256 == "" {
		t.Errorf("%s, hashes %q %q", describe(o), o.Stdout.SHA256, o.Stderr.SHA256)
	}
}
