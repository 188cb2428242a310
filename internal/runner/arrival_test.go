package runner

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
)

// shownOf is what a model is shown of what a command wrote.
func shownOf(o result.Outcome) string { return o.Shown(result.MaxStreamBytes, "ns", "c") }

func TestOutputIsShownInTheOrderInWhichItArrived(t *testing.T) {
	// Two: a second reader of one could come before the first writer has closed it.
	dir := t.TempDir()
	fifos := []string{filepath.Join(dir, "first"), filepath.Join(dir, "second")}
	for _, fifo := range fifos {
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := bash(`echo 1; read < "$1"; echo 2 >&2; read < "$2"; echo 3`)
	cmd.Argv = append(cmd.Argv, append([]string{"bash"}, fifos...)...)
	shown := keeping(t, &cmd, 8<<20)
	ended := make(chan result.Outcome, 1)
	go func() { ended <- Run(t.Context(), cmd) }()
	s := <-shown
	for i, stream := range []kept.Output{s.stdout, s.stderr} {
		if err := stream.Wait(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(fifos[i], []byte("\n"), 0); err != nil {
			t.Fatal(err)
		}
	}
	o := <-ended
	completed("1\n3\n", "2\n").check(t, o)
	if got := shownOf(o); got != "1\n2\n3\n" {
		t.Errorf("shown: %q", got)
	}
}

// What came first is shown first, also when both are there before anybody reads.
func TestTheStreamThatWasWrittenToFirstIsShownFirst(t *testing.T) {
	for range 20 {
		for script, want := range map[string]string{"echo out; echo err >&2": "out\nerr\n", "echo err >&2; echo out": "err\nout\n"} {
			if got := shownOf(runIt(t, t.Context(), bash(script))); got != want {
				t.Fatalf("%s is shown as %q", script, got)
			}
		}
	}
}

func TestAModelIsShownWhatATerminalShows(t *testing.T) {
	o := runIt(t, t.Context(), bash(`for i in $(seq 1 300); do printf '\r%3d%%' $i; done; printf '\n\033[31mFAIL\033[0m t1\n'; echo done`))
	if got := shownOf(o); got != "300%\nFAIL t1\ndone\n" {
		t.Errorf("shown: %q", got)
	}
	if o.Stdout.Bytes != 1523 || !strings.Contains(text(o.Stdout), "\r299%\r300%\n\x1b[31mFAIL\x1b[0m t1\n") {
		t.Errorf("stdout has %d bytes: %q", o.Stdout.Bytes, text(o.Stdout))
	}
}

func TestWhatIsShownTakesNothingWhenItIsOneStream(t *testing.T) {
	for script, isOne := range map[string]bool{
		"echo a; echo b": true, "echo a >&2": true, "true": true, "seq 200000": true,
		"echo a; echo b >&2": false, "printf 'a\\r\\n'": false, "printf '\\377'": false,
	} {
		cmd := bash(script)
		cmd.MaxBytesPerStream = 100
		if o := runIt(t, t.Context(), cmd); (o.Output.Bytes == 0) != isOne {
			t.Errorf("%s: %d bytes beside the streams", script, o.Output.Bytes)
		}
	}
}

// What is left out of a stream is left out of what is shown, and no more than that when one writes little.
func TestWhatIsShownIsBounded(t *testing.T) {
	cmd := bash(`echo begun >&2; seq 1 100000 | sed 's/^/\x1b[1m/'; echo ended >&2`)
	cmd.MaxBytesPerStream = 1000
	o := runIt(t, t.Context(), cmd)
	got := shownOf(o)
	if len(got) > 1000+12+result.MaxMarker || !strings.HasPrefix(got, "begun\n1\n2\n") || !strings.HasSuffix(got, "\n99999\n100000\nended\n") || !strings.Contains(got, " bytes left out ...]\n") {
		t.Errorf("shown: %d bytes, %q", len(got), got)
	}
	if o.Output.Bytes != 588895+12 || len(o.Output.Head)+len(o.Output.Tail) != 2000 {
		t.Errorf("%d bytes were shown, %d and %d are kept", o.Output.Bytes, len(o.Output.Head), len(o.Output.Tail))
	}
}

// A value is whole only in what is shown when it is in colors, or in pieces of both streams.
func TestKnownValuesAreInNothingThatIsShown(t *testing.T) {
	for script, want := range map[string]string{
		`echo a; echo correct-horse-battery >&2`:                                       "a\n[redacted: token]\n",
		`printf 'correct-\033[31mhorse\033[0m-battery\n'`:                              "[redacted: token]\n",
		`printf 'correct-horxx\b\bse-battery\n'`:                                       "[redacted: token]\n",
		`printf 'a\rcorrect-horse-'; printf '\033[1mbattery\n'`:                        "[redacted: token]\n",
		`printf 'correct-'; sleep 0.05; printf horse- >&2; sleep 0.05; printf battery`: "",
	} {
		o := runIt(t, t.Context(), redacting(bash(script)))
		got := shownOf(o)
		if strings.Contains(got, known) || want != "" && got != want {
			t.Errorf("%s is shown as %q", script, got)
		}
		if want != "" && len(o.Redactions) == 0 {
			t.Errorf("%s: nothing is said of it", script)
		}
	}
}

// What the process left in its pipes is read, also where no reader had processor time before the end.
func TestWhatIsInThePipesAtTheEndIsRead(t *testing.T) {
	t.Parallel()
	for name, isHeld := range map[string]bool{"the process alone had them": false, "another process holds them": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ends [2]*os.File
			for i := range ends {
				end, writer, err := outputPipe()
				if err != nil {
					t.Fatal(err)
				}
				ends[i] = end
				if _, err := writer.Write(bytes.Repeat([]byte("x"), pipeSize)); err != nil {
					t.Fatal(err)
				}
				if !isHeld {
					writer.Close()
					continue
				}
				t.Cleanup(func() { writer.Close() })
			}
			poll, err := newPoll(ends[0], ends[1])
			if err != nil {
				t.Fatal(err)
			}
			limits := kept.Limits{Memory: result.MaxStreamBytes}
			o := &outputs{shown: newShown(0, nil), poll: poll, stop: make(chan struct{}), done: make(chan struct{})}
			for i, end := range ends {
				o.streams[i] = newStream(end, limits, nil, nil)
			}
			if o.events, err = poll.SyscallConn(); err != nil {
				t.Fatal(err)
			}
			close(o.stop)
			if err := poll.SetReadDeadline(time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
			o.read()
			for _, s := range o.streams {
				if got := s.capture.stream(); got.Bytes != pipeSize || (got.SHA256 == "") != isHeld {
					t.Errorf("%d of %d bytes, with the sum %q", got.Bytes, pipeSize, got.SHA256)
				}
			}
			o.finish(time.Minute)
		})
	}
}
