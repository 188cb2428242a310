package result

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestOutputReadsAsSpecified(t *testing.T) {
	t.Parallel()
	const refusal = `"/usr/bin/id" was not allowed to run: add it to binaries.allowed of policy "agents".`
	const limit = "The command was stopped at its limit of 2 s."
	for name, c := range map[string]struct {
		outcome        Outcome
		shown, message string
		want           string
	}{
		"output":                     {Outcome{ExitCode: Exit(0), DurationMS: 1500}, "hello", "", "hello\n\nTook 1.5s"},
		"output that ends its line":  {Outcome{ExitCode: Exit(0)}, "hello\n", "", "hello\n\nTook 0.0s"},
		"nothing":                    {Outcome{ExitCode: Exit(0)}, "", "", "(no output)\n\nTook 0.0s"},
		"minutes":                    {Outcome{ExitCode: Exit(0), DurationMS: 125_000}, "a\n", "", "a\n\nTook 2m 5.0s"},
		"a failure":                  {Outcome{ExitCode: Exit(3)}, "out\n", "It failed.", "out\n\nCommand exited with code 3\n\nTook 0.0s"},
		"a silent failure":           {Outcome{ExitCode: Exit(1)}, "", "", "(no output)\n\nCommand exited with code 1\n\nTook 0.0s"},
		"a time limit":               {Outcome{DurationMS: 2000}, "part\n", limit, "part\n\n" + limit + "\n\nTook 2.0s"},
		"refused, and exit code 0":   {Outcome{ExitCode: Exit(0), Refusal: refusal}, ".\n", "", ".\n\n" + refusal + "\n\nTook 0.0s"},
		"refused, and a failure":     {Outcome{ExitCode: Exit(1), Refusal: refusal}, "a", "", "a\n\nCommand exited with code 1\n" + refusal + "\n\nTook 0.0s"},
		"refused, and a time limit":  {Outcome{Refusal: refusal}, "a", limit + " " + refusal, "a\n\n" + limit + " " + refusal + "\n\nTook 0.0s"},
		"refused, and stopped":       {Outcome{Refusal: refusal}, "a", limit, "a\n\n" + limit + "\n" + refusal + "\n\nTook 0.0s"},
		"a message of several lines": {Outcome{}, "a", "one\ntwo", "a\n\none two\n\nTook 0.0s"},
	} {
		if got := Output(&c.outcome, c.shown, c.message); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestALineIsAddedBeforeTheTime(t *testing.T) {
	t.Parallel()
	for _, shown := range []string{"a", "a\n", "a\n\nTook 9.0s\n"} {
		before := Output(&Outcome{ExitCode: Exit(0)}, shown, "")
		text := AddLine(before, "More of it.\nMore of that.")
		if want := strings.TrimSuffix(shown, "\n") + "\n\nMore of it.\nMore of that.\n\nTook 0.0s"; text != want {
			t.Errorf("got %q, want %q", text, want)
		}
		if text = RemoveLine(text, "More of it."); text != AddLine(before, "More of that.") {
			t.Errorf("one line is left: %q", text)
		}
		if text = RemoveLine(text, "More of that."); text != before {
			t.Errorf("no line is left: %q", text)
		}
	}
}

func TestWithoutAnOrderStdoutIsFirst(t *testing.T) {
	t.Parallel()
	stream := func(text string) Stream {
		return Stream{Head: []byte(text), Bytes: int64(len(text)), InvalidUTF8: !utf8.ValidString(text)}
	}
	binary := stream(strings.Repeat("\x89PNG\xff\x00", 10))
	part := binary
	part.Tail, part.Bytes = []byte("\xa9text"), 60000
	for name, c := range map[string]struct {
		outcome Outcome
		want    string
	}{
		"a picture": {Outcome{Stdout: binary, Stderr: stream("saved\n"), Output: stream("\uFFFDPNG\nsaved\n")},
			"(60 bytes of stdout, which are binary and aren't shown as text: kubectl toolcall logs c -n ns --stream stdout gets them)\nsaved\n"},
		"a large picture": {Outcome{Stderr: part},
			"(60000 bytes of stderr, which are binary and aren't shown as text: kubectl toolcall logs c -n ns --stream stderr gets them)"},
		"a text with other bytes": {Outcome{Stdout: stream("caf\xe9 one\n")}, "caf\uFFFD one\n"},
		"an order":                {Outcome{Stdout: stream("a\nc\n"), Stderr: stream("b\n"), Output: stream("a\nb\nc\n")}, "a\nb\nc\n"},
		"none":                    {Outcome{Stdout: stream("a\x1b[0m\n"), Stderr: stream("1%\r2%\n")}, "a\n2%\n"},
		"half a line first":       {Outcome{Stdout: stream("a"), Stderr: stream("b")}, "a\nb"},
		"stdout alone":            {Outcome{Stdout: stream("a")}, "a"},
		"stderr alone":            {Outcome{Stderr: stream("b")}, "b"},
		"too much": {Outcome{Output: stream(strings.Repeat("x", 300))},
			strings.Repeat("x", 100) + "\n[... 100 bytes left out ...]\n" + strings.Repeat("x", 100)},
		"more than the streams show": {Outcome{Stdout: Stream{Head: []byte("ab"), Tail: []byte("yz"), Bytes: 9}, Output: stream("abcdyz")},
			"ab\n[... 2 bytes left out ...]\nyz"},
	} {
		if got := c.outcome.Shown(100, "ns", "c"); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestTookRoundsBeforeItSplits(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]string{
		-time.Second:                 "Took 0.0s",
		49 * time.Millisecond:        "Took 0.0s",
		50 * time.Millisecond:        "Took 0.1s",
		59949 * time.Millisecond:     "Took 59.9s",
		59960 * time.Millisecond:     "Took 1m 0.0s",
		time.Minute:                  "Took 1m 0.0s",
		125 * time.Second:            "Took 2m 5.0s",
		119960 * time.Millisecond:    "Took 2m 0.0s",
		61*time.Minute + time.Second: "Took 61m 1.0s",
	} {
		if got := Took(took); got != want {
			t.Errorf("%v: got %q, want %q", took, got, want)
		}
	}
}
