package plugin

import (
	"fmt"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/output"
)

// --tail begins at a line, whatever the size of the stream, and follows what comes.
func TestTailOfAStream(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
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
			f.detached(name)
			f.writing(f.call(name), c.text)
			f.setRunning(name, "pod")
			got := f.run("logs", name, "--stream", "stdout", "--tail", c.lines)
			if got.code != 0 || got.out != c.want || got.err != "" {
				t.Errorf("exit code %d, %d bytes instead of %d: %.60q %s", got.code, len(got.out), len(c.want), got.out, got.err)
			}
		})
	}
}

// What wasn't kept ends the search: the lines behind it come.
func TestTailBehindAPartThatWasNotKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("c")
	stdout := f.writing(f.call("c"), "first\nsecond\nthird\n")
	stdout.Leave(2, 9)
	f.setRunning("c", "pod")
	if got := f.run("logs", "c", "--stream", "stdout", "--tail", "3"); got != (printed{"ond\nthird\n", "", 0}) {
		t.Errorf("got %+v", got)
	}
	if got := f.run("logs", "c", "--stream", "stdout", "--tail", "1"); got != (printed{"third\n", "", 0}) {
		t.Errorf("got %+v", got)
	}
	f.detached("new")
	if got := f.run("logs", "new", "--tail", "3"); got.code != 0 || !strings.Contains(got.err, "has not started") {
		t.Errorf("got %+v", got)
	}
	f.outputs.Add(f.call("new"), output.Stdout)
}
