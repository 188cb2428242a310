package follow_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/output"
)

func TestLiveOutput(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call, s := f.create(), newRecorder()
	stdout, stderr := outputs.Add(call, output.Stdout), outputs.Add(call, output.Stderr)
	f.start(call, "pod")
	done := f.wait(t.Context(), f.clients(), call, s.watcher())
	_, _ = stdout.Write([]byte("one\n"))
	until(t, "live output", s.wrote)
	if out, errs := s.text(); out != "one\n" || errs != "" {
		t.Errorf("while it runs there is %q and %q", out, errs)
	}
	_, _ = stderr.Write([]byte("oops"))
	until(t, "live errors", s.wrote)
	f.finish(call, "one\ntwo", "oops\n")
	must(t, result(t, done).err)
	if out, errs := s.text(); out != "one\ntwo" || errs != "oops\n" || len(s.notices) > 0 {
		t.Errorf("got %q, %q, notices %q", out, errs, s.notices)
	}
}

// In one place, both streams come as they are written.
func TestLiveOutputOfBothStreamsInOnePlace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call, s := f.create(), newRecorder()
	stdout, stderr := outputs.Add(call, output.Stdout), outputs.Add(call, output.Stderr)
	f.start(call, "pod")
	watcher := s.watcher()
	watcher.Errors = nil
	done := f.wait(t.Context(), f.clients(), call, watcher)
	for _, text := range []string{"one\n", "oops\n", "two\n"} {
		to := stdout
		if text == "oops\n" {
			to = stderr
		}
		_, _ = to.Write([]byte(text))
		until(t, "live output", s.wrote)
	}
	f.finish(call, "one\ntwo\n", "oops\n")
	must(t, result(t, done).err)
	if out, _ := s.text(); out != "one\noops\ntwo\n" {
		t.Errorf("got %q", out)
	}
}

// A call in a session has live output like any other.
func TestLiveOutputInASession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call := f.callIn(f.session("s"))
	s, stdout := newRecorder(), outputs.Add(call, output.Stdout)
	f.start(call, "")
	done := f.wait(t.Context(), f.clients(), call, s.watcher())
	_, _ = stdout.Write([]byte("one\n"))
	until(t, "live output", s.wrote)
	f.finish(call, "one\n", "")
	must(t, result(t, done).err)
	if out, _ := s.text(); out != "one\n" {
		t.Errorf("got %q, notices %q", out, s.notices)
	}
}

// cut returns a change of a status whose text is a truncated form of what was written.
func cut(written string) func(*v1alpha1.ToolCallStatus) {
	return func(s *v1alpha1.ToolCallStatus) {
		sum := sha256.Sum256([]byte(written))
		s.Streams.Stdout = v1alpha1.StreamStatus{Bytes: int64(len(written)), SHA256: hex.EncodeToString(sum[:]), Truncated: true}
	}
}

// What the status doesn't have comes from the API, from where live output ended.
func TestTruncatedOutputComesFromTheAPI(t *testing.T) {
	t.Parallel()
	written := strings.Repeat("0123456789\n", 1000) + "\xff\x00end"
	for name, live := range map[string]bool{"after live output": true, "at the end": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			call, s := f.create(), newRecorder()
			stdout := outputs.Add(call, output.Stdout)
			f.start(call, "pod")
			watcher := s.watcher()
			watcher.AtEnd = !live
			done := f.wait(t.Context(), f.clients(), call, watcher)
			_, _ = stdout.Write([]byte(written[:5000]))
			if live {
				until(t, "live output", s.wrote)
			}
			f.finish(call, "0123[...]end", "", cut(written))
			_, _ = stdout.Write([]byte(written[5000:]))
			stdout.Finish()
			must(t, result(t, done).err)
			if out, _ := s.text(); out != written || len(s.notices) > 0 {
				t.Errorf("got %d bytes, notices %q", len(out), s.notices)
			}
		})
	}
}

// Who has the status as well asks for no more at the end.
func TestNoRemainder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call, s := f.create(), newRecorder()
	stdout := outputs.Add(call, output.Stdout)
	_, _ = stdout.Write([]byte("0123456789"))
	stdout.Finish()
	f.finish(call, "0[...]9", "", cut("0123456789"))
	watcher := s.watcher()
	watcher.NoRemainder = true
	must(t, result(t, f.wait(t.Context(), f.clients(), call, watcher)).err)
	if out, _ := s.text(); out != "" || len(s.notices) > 0 {
		t.Errorf("got %q, notices %q", out, s.notices)
	}
}

// A part that wasn't kept is marked, and the rest comes.
func TestAPartThatWasNotKeptIsMarked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call, s := f.create(), newRecorder()
	stdout := outputs.Add(call, output.Stdout)
	_, _ = stdout.Write([]byte("0123456789"))
	stdout.Leave(3, 7)
	stdout.Finish()
	f.finish(call, "0[...]9", "", cut("0123456789"))
	must(t, result(t, f.wait(t.Context(), f.clients(), call, s.watcher())).err)
	if out, _ := s.text(); out != "012789" || len(s.notices) != 1 || s.notices[0] != "4 bytes of stdout, from offset 3 on, were not kept" {
		t.Errorf("got %q, notices %q", out, s.notices)
	}
}

// If the status has the whole output, nobody waits for the API, which here never has it.
func TestWholeOutputNeedsNoAPI(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call, s := f.create(), newRecorder()
	f.start(call, "pod")
	done := f.wait(t.Context(), f.clients(), call, s.watcher())
	until(t, "start", s.changed)
	f.finish(call, "out\n", "err\n")
	must(t, result(t, done).err)
	if out, errs := s.text(); out != "out\n" || errs != "err\n" || len(s.notices) > 0 {
		t.Errorf("got %q, %q, notices %q", out, errs, s.notices)
	}
}

// Without the right to read output, a notice says which is missing, and the status completes what it can.
func TestOutputWithoutPermission(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	config := rest.CopyConfig(suite.Server().Config)
	config.Impersonate.UserName = "nobody"
	clients := follow.Clients{Calls: f.calls, Output: newOutput(t, config)}
	call, s := f.create(), newRecorder()
	f.start(call, "pod")
	noticed := make(chan struct{}, 1)
	watcher := s.watcher()
	notice := watcher.Notice
	watcher.Notice = func(text string) {
		notice(text)
		select {
		case noticed <- struct{}{}:
		default:
		}
	}
	done := f.wait(t.Context(), clients, call, watcher)
	until(t, "notice", noticed)
	f.finish(call, "out\n", "")
	must(t, result(t, done).err)
	if out, _ := s.text(); out != "out\n" || len(s.notices) != 1 || !strings.Contains(s.notices[0], "toolcalls/log") {
		t.Errorf("got %q, notices %q", out, s.notices)
	}
	other, s := f.create(), newRecorder()
	f.finish(other, "0[...]9", "", cut("0123456789"))
	must(t, result(t, f.wait(t.Context(), clients, other, s.watcher())).err)
	if out, _ := s.text(); out != "0[...]9" || len(s.notices) != 1 || !strings.Contains(s.notices[0], "truncated") {
		t.Errorf("got %q, notices %q", out, s.notices)
	}
}
