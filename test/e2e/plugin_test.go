package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

// A person at a shell sees a command that ran elsewhere end as if it had run here.
func TestPluginRunExitsAsTheCommandDid(t *testing.T) {
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
		if !strings.HasPrefix(lines.Text(), "call ") && !strings.HasPrefix(lines.Text(), "waiting for ") {
			return lines.Text()
		}
	}
	t.Fatalf("no more lines: %v", lines.Err())
	return ""
}

func TestPluginInterruptCancelsTheCall(t *testing.T) {
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

// More than the status keeps comes whole, byte for byte.
func TestPluginRunGivesAllOfALongOutput(t *testing.T) {
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
