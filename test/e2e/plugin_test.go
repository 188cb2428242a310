package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

// A person at a shell sees a command that ran elsewhere end as if it had run here.
func TestPluginRunExitsAsTheCommandDid(t *testing.T) {
	once(t)
	t.Parallel()
	sp := newSpace(t)
	script := filepath.Join(t.TempDir(), "script.py")
	must(t, os.WriteFile(script, []byte("import math\nprint(math.floor(6.5) * 7)\n"), 0o600))
	for name, c := range map[string]struct {
		stdin   string
		args    []string
		code    int
		out     string
		errPart string
	}{
		"success":                    {"", []string{"--", "echo", "a b", "c"}, 0, "a b c\n", ""},
		"both streams and a code":    {"", []string{"--shell", "echo out; echo err >&2; exit 3"}, 3, "out\n", "err\n"},
		"no newline at the end":      {"", []string{"--", "printf", "x"}, 0, "x", ""},
		"the time limit":             {"", []string{"--timeout", "3s", "--shell", "echo up; sleep 600"}, 124, "up\n", "TimedOut"},
		"a signal":                   {"", []string{"--shell", "kill -SEGV $$"}, 139, "", "SIGSEGV"},
		"no such program":            {"", []string{"--", "no-such-program"}, 127, "", "never started, so it is safe to run it again"},
		"a denial":                   {"", []string{"--code", "python", "-f", "-"}, 126, "", "explain-denial"},
		"no such environment":        {"", []string{"--environment", "nowhere", "--", "ls"}, 125, "", "EnvironmentNotFound"},
		"no such directory":          {"", []string{"-w", "/nowhere", "--", "ls"}, 125, "", "WorkingDirNotFound"},
		"a name that the API denies": {"", []string{"--name", "Not_A_Name", "--", "ls"}, 125, "", "the API server rejected the call"},
		"standard input":             {"one two\n", []string{"--stdin", "--", "wc", "-w"}, 0, "2\n", ""},
		"a snippet":                  {"print('hi')", []string{"--code", "python", "-f", "-"}, 0, "hi\n", ""},
		"a snippet in a file":        {"", []string{"--code", "python", "-f", script}, 0, "42\n", ""},
		"variables and a directory":  {"", []string{"-e", "A=b c", "-w", "/tmp", "--shell", `echo "$A"; pwd`}, 0, "b c\n/tmp\n", ""},
		"a model's tool call":        {"", []string{"--tool", "bash", "--arguments", `{"command": "echo tool"}`}, 0, "tool\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "a denial" {
				c.stdin = "import subprocess"
			}
			got := sp.plugin(t, c.stdin, append([]string{"run"}, c.args...)...)
			expectSaid(t, got, c.code, c.out, c.errPart)
			if c.code != 124 && strings.Contains(got.err, "note:") {
				t.Errorf("a short call is commented on: %s", got.err)
			}
		})
	}
}

// follower runs the plugin with both streams in one pipe, as on a terminal, and gives its lines.
func (sp *space) follower(t *testing.T, args ...string) (lines *bufio.Scanner, signal func(os.Signal), exit func() int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := sp.pluginCommand(t, ctx, args...)
	reader, writer, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { reader.Close() })
	cmd.Stdout, cmd.Stderr = writer, writer
	must(t, cmd.Start())
	writer.Close()
	return bufio.NewScanner(reader), func(s os.Signal) { must(t, cmd.Process.Signal(s)) }, func() int { return exitOf(t, cmd.Wait()) }
}

// nextLine skips what is said about the call's progress.
func nextLine(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "call ") {
			return lines.Text()
		}
	}
	t.Fatalf("no more lines: %v", lines.Err())
	return ""
}

// The command waits for a file that only appears once its output was seen here: output that comes at the end
// would never come.
func TestPluginShowsOutputWhileTheCommandRuns(t *testing.T) {
	once(t)
	t.Parallel()
	sp := newSpace(t)
	lines, _, exit := sp.follower(t, "run", "--name", "live", "--shell", "echo first; echo second >&2; "+held+"; echo last")
	// The two streams are read apart: which comes first is chance.
	got := []string{nextLine(t, lines), nextLine(t, lines)}
	slices.Sort(got)
	expectSame(t, "live output", []string{"first", "second"}, got)
	call := &v1alpha1.ToolCall{}
	must(t, sp.client.Get(t.Context(), keyOf(&v1alpha1.ToolCall{ObjectMeta: objectMeta(sp.namespace, "live")}), call))
	if call.Status.Phase != v1alpha1.PhaseRunning {
		t.Errorf("the output came when the call was %s", call.Status.Phase)
	}
	sp.letGo(t, call)
	if got := nextLine(t, lines); got != "last" {
		t.Errorf("got %q", got)
	}
	if lines.Scan() || exit() != 0 {
		t.Errorf("more than all: %q", lines.Text())
	}
}

func TestPluginInterruptCancelsTheCall(t *testing.T) {
	once(t)
	t.Parallel()
	sp := newSpace(t)
	lines, signal, exit := sp.follower(t, "run", "--name", "interrupted", "--shell", "trap 'echo asked; exit 5' TERM; echo up; while true; do sleep 0.1; done")
	if got := nextLine(t, lines); got != "up" {
		t.Fatalf("got %q", got)
	}
	signal(syscall.SIGINT)
	var rest []string
	for lines.Scan() {
		rest = append(rest, lines.Text())
	}
	text := strings.Join(rest, "\n")
	if code := exit(); code != 130 || !strings.Contains(text, "asked") || !strings.Contains(text, "cancelling call interrupted") {
		t.Errorf("exit code %d, %s", code, text)
	}
	call := &v1alpha1.ToolCall{}
	must(t, sp.client.Get(t.Context(), keyOf(&v1alpha1.ToolCall{ObjectMeta: objectMeta(sp.namespace, "interrupted")}), call))
	if call.Status.Phase != v1alpha1.PhaseCancelled {
		t.Errorf("the call is %s", call.Status.Phase)
	}
}

// The second Ctrl-C leaves a call that takes its time to stop; it ends all the same.
func TestPluginSecondInterruptLeaves(t *testing.T) {
	once(t)
	t.Parallel()
	sp := newSpace(t)
	lines, signal, exit := sp.follower(t, "run", "--name", "left", "--shell", "trap '' TERM; echo up; while true; do sleep 0.1; done")
	if got := nextLine(t, lines); got != "up" {
		t.Fatalf("got %q", got)
	}
	signal(syscall.SIGINT)
	if got := nextLine(t, lines); !strings.Contains(got, "press Ctrl-C again") {
		t.Fatalf("got %q", got)
	}
	signal(syscall.SIGINT)
	if got := nextLine(t, lines); !strings.Contains(got, "stopped following call left before it finished") {
		t.Errorf("got %q", got)
	}
	if code := exit(); code != 130 {
		t.Errorf("exit code %d", code)
	}
	got := sp.plugin(t, "", "wait", "left")
	if got.code != 130 || !strings.HasPrefix(got.out, "left Cancelled CancelRequested") {
		t.Errorf("got %+v", got)
	}
}

func TestPluginDetachLogsWaitAndCancel(t *testing.T) {
	once(t)
	t.Parallel()
	sp := newSpace(t)
	got := sp.plugin(t, "", "run", "--detach", "--name", "later", "--shell", "echo a; sleep 0.5; echo b; exit 4")
	expectSaid(t, got, 0, "later\n", "")
	expectSaid(t, sp.plugin(t, "", "run", "--name", "later", "--", "true"), 125, "", "a call with a given name runs at most once")
	expectSaid(t, sp.plugin(t, "", "logs", "-f", "later"), 0, "a\nb\n", "")
	expectSaid(t, sp.plugin(t, "", "logs", "later"), 0, "a\nb\n", "")
	if got = sp.plugin(t, "", "wait", "later"); got.code != 4 || !strings.HasPrefix(got.out, "later Failed NonZeroExit exit 4 after ") {
		t.Errorf("wait: %+v", got)
	}
	expectSaid(t, sp.plugin(t, "", "run", "--detach", "--name", "long", "--", "sleep", "600"), 0, "long\n", "")
	expectSaid(t, sp.plugin(t, "", "wait", "long", "--timeout", "1s"), 125, "", "did not finish within --timeout")
	expectSaid(t, sp.plugin(t, "", "cancel", "long", "none"), 1, "long: cancellation requested\n", `call none not found in namespace "`+sp.namespace)
	if got = sp.plugin(t, "", "wait", "long", "later"); got.code != 130 {
		t.Errorf("of two calls: %+v", got)
	}
	got = sp.plugin(t, "", "get")
	for _, want := range []string{"later", "NonZeroExit", "4", "long", "CancelRequested", defaultEnv} {
		if !strings.Contains(got.out, want) {
			t.Errorf("get lacks %q: %s", want, got.out)
		}
	}
	if got = sp.plugin(t, "", "get", "--phase", "cancelled", "-o", "name"); got.out != "toolcall.toolcall.dev/long\n" {
		t.Errorf("get --phase: %+v", got)
	}
	got = sp.plugin(t, "", "describe", "later")
	for _, want := range []string{"Failed (NonZeroExit)", "Standard output (4 bytes):\n  a\n  b\n", "Directory:", "Started after:"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("describe lacks %q: %s", want, got.out)
		}
	}
}

// More than the status keeps comes whole, byte for byte.
func TestPluginRunGivesAllOfALongOutput(t *testing.T) {
	once(t)
	t.Parallel()
	sp := newSpace(t)
	var want bytes.Buffer
	for i := range 60000 {
		want.WriteString(strconv.Itoa(i+1) + "\n")
	}
	for _, live := range []string{"always", "never"} {
		t.Run(live, func(t *testing.T) {
			t.Parallel()
			got := sp.plugin(t, "", "run", "--live", live, "--shell", "seq 1 60000")
			sum, wanted := sha256.Sum256([]byte(got.out)), sha256.Sum256(want.Bytes())
			if got.code != 0 || sum != wanted {
				t.Errorf("exit code %d, %d bytes %s, not %d; %s", got.code, len(got.out), hex.EncodeToString(sum[:4]), want.Len(), got.err)
			}
		})
	}
}
