package result

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestATextIsWhatATerminalShowsInTheEnd(t *testing.T) {
	t.Parallel()
	var progress strings.Builder
	for i := range 301 {
		fmt.Fprintf(&progress, "\r%3d%%", i)
	}
	for name, c := range map[string]struct{ written, shown string }{
		"plain text":                        {"a\tb\nc", "a\tb\nc"},
		"blank lines":                       {"\n\na\n\n", "\n\na\n\n"},
		"wide characters":                   {"日本 é\u00a0😀\n", "日本 é\u00a0😀\n"},
		"a progress bar":                    {progress.String() + "\n", "300%\n"},
		"a progress bar without a line end": {progress.String(), "300%"},
		"lines of DOS":                      {"a\r\nb\r\n", "a\nb\n"},
		"a shorter text over a longer one":  {"downloading\rdone\n", "done\n"},
		"a carriage return at the end":      {"50%\r", "50%"},
		"a line that is cleared":            {"working\r\x1b[Kdone\n", "done\n"},
		"a line that is cleared for good":   {"a\nworking\r\x1b[K\n", "a\n\n"},
		"a line that is cleared whole":      {"working\x1b[2K\x1b[1Gdone\n", "done\n"},
		"the rest of a line cleared":        {"abc\b\b\x1b[0Kx\n", "ax\n"},
		"colors":                            {"\x1b[1;31mFAIL\x1b[0m t1\n", "FAIL t1\n"},
		"a title":                           {"\x1b]0;title\aa\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", "alink\n"},
		"a title without an end":            {"\x1b]0;title\nnext\n", "\nnext\n"},
		"a character set":                   {"\x1b(Ba\x1b=b\x1b7c\n", "abc\n"},
		"sequences of one character":        {"\u009b31mab\u0085\n", "ab\n"},
		"a quotation mark, decoded wrongly": {"he said \u00e2\u0080\u009dno\u00e2\u0080\u0098 twice\n", "he said \u00e2no\u00e2 twice\n"},
		"half a sequence":                   {"a\x1b[31", "a"},
		"a sequence that is none":           {"a\x1b[3\nb\n", "a\nb\n"},
		"bold by backspaces":                {"N\bNA\bAM\bME\bE\n", "NAME\n"},
		"a spinner":                         {"wait |\b/\b-\b\\\b done\n", "wait  done\n"},
		"backspaces behind the start":       {"a\n\b\b\bb\n", "a\nb\n"},
		"backspaces over wide characters":   {"日本\b\bx\n", "x\n"},
		"other control characters":          {"a\x00b\ac\vd\fe\x7ff\n", "abcdef\n"},
		"what isn't UTF-8":                  {"caf\xe9 one\n", "caf\uFFFD one\n"},
		"half a character":                  {"a\xe2\x82", "a\uFFFD"},
	} {
		if got := Show(c.written); got != c.shown {
			t.Errorf("%s: got %q, want %q", name, got, c.shown)
		}
		s, got := newTestScreen()
		for _, b := range []byte(c.written) {
			s.Write(1, []byte{b})
		}
		if s.Finish(); got.String() != c.shown {
			t.Errorf("%s, byte by byte: got %q, want %q", name, got.String(), c.shown)
		}
		if s.Changed() != (c.written != c.shown) {
			t.Errorf("%s: changed: %t", name, s.Changed())
		}
	}
}

func newTestScreen() (*Screen, *bytes.Buffer) {
	got := &bytes.Buffer{}
	return NewScreen(func(p []byte) { got.Write(p) }), got
}

func TestStreamsSplitNeitherSequencesNorCharactersOfEachOther(t *testing.T) {
	t.Parallel()
	s, got := newTestScreen()
	for _, p := range []struct {
		stream int
		text   string
	}{{0, "1\n\x1b[3"}, {1, "2\xe6\x97"}, {0, "1mred\n"}, {1, "\xa5\n"}, {0, "3\n"}} {
		s.Write(p.stream, []byte(p.text))
	}
	if s.Finish(); got.String() != "1\n2red\n日\n3\n" {
		t.Errorf("got %q", got.String())
	}
}

func TestALineThatIsTooLongToBeDrawnAgainStands(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxScreenLine+1)
	if got := Show(long + "\rdone\n"); got != long+"\ndone\n" {
		t.Errorf("got %d bytes that end in %q", len(got), got[len(got)-8:])
	}
	if got := Show("a\x1b]" + strings.Repeat("x", 2*maxSequence)); len(got) > maxSequence+1 || len(got) < maxSequence {
		t.Errorf("%d bytes are left of a sequence without an end", len(got))
	}
}

func FuzzScreen(f *testing.F) {
	f.Add([]byte("a\r\x1b[Kb\b\bc\xe2\x82\n"), 3)
	f.Fuzz(func(t *testing.T, data []byte, piece int) {
		piece = max(piece%16, 1)
		whole := Show(string(data))
		s, got := newTestScreen()
		for i := 0; i < len(data); i += piece {
			s.Write(0, data[i:min(i+piece, len(data))])
		}
		if s.Finish(); got.String() != whole {
			t.Errorf("in pieces %q, whole %q", got.String(), whole)
		}
		if !s.Changed() && whole != string(data) {
			t.Errorf("%q became %q unnoticed", data, whole)
		}
		isControl := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
		if !utf8.ValidString(whole) || strings.ContainsFunc(whole, isControl) {
			t.Errorf("shows %q", whole)
		}
		if again := Show(whole); again != whole {
			t.Errorf("%q is shown as %q", whole, again)
		}
	})
}
