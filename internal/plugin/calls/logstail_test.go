package calls

import (
	"fmt"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// --tail begins at a line, whatever the size of the stream, and follows what comes.
func TestTailOfAStream(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	var long strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&long, "line %d\n", i)
	}
	for name, c := range map[string]struct {
		text  string
		lines string
		want  string
	}{
		"all":               {"a\nb\n", "-1", "a\nb\n"},
		"none":              {"a\nb\n", "0", ""},
		"last":              {"a\nb\n", "1", "b\n"},
		"unfinished":        {"a\nb\nc", "2", "b\nc"},
		"more-than-are":     {"a\nb\n", "9", "a\nb\n"},
		"empty-lines":       {"a\n\n\n", "2", "\n\n"},
		"nothing":           {"", "3", ""},
		"over-several-read": {long.String(), "20000", strings.Join(strings.SplitAfter(long.String(), "\n")[10_000:], "")},
		"one-long-line":     {strings.Repeat("x", 3*tailBlock), "1", strings.Repeat("x", 3*tailBlock)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f.Detached(name)
			f.Writing(f.Call(name), c.text)
			f.SetRunning(name, "pod")
			got := f.Run("logs", name, "--stream", "stdout", "--tail", c.lines)
			if got.Code != 0 || got.Out != c.want || got.Err != "" {
				t.Errorf("exit code %d, %d bytes instead of %d: %.60q %s", got.Code, len(got.Out), len(c.want), got.Out, got.Err)
			}
		})
	}
}

// What wasn't kept ends the search: the lines behind it come.
func TestTailBehindAPartThatWasNotKept(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("c")
	stdout := f.Writing(f.Call("c"), "first\nsecond\nthird\n")
	stdout.Leave(2, 9)
	f.SetRunning("c", "pod")
	if got := f.Run("logs", "c", "--stream", "stdout", "--tail", "3"); got != (plugintest.Printed{Out: "ond\nthird\n"}) {
		t.Errorf("got %+v", got)
	}
	if got := f.Run("logs", "c", "--stream", "stdout", "--tail", "1"); got != (plugintest.Printed{Out: "third\n"}) {
		t.Errorf("got %+v", got)
	}
	f.Detached("new")
	if got := f.Run("logs", "new", "--tail", "3"); got.Code != 0 || !strings.Contains(got.Err, "has not started") {
		t.Errorf("got %+v", got)
	}
	f.Outputs.Add(f.Call("new"), output.Stdout)
}
