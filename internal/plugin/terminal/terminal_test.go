package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestOrdinaryTextPassesUnchanged(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "plain\n", "a\tb\n\nc", "two lines\r\nof Windows\r\n", "ünï €𝄞 日本語", "שלום עולם", "नमस्ते क्\u200dष", "می\u200cخواهم",
		"👩\u200d👩\u200d👧", "\u0600123", "^[ and <U+202E> as text", "\u00a0\u3000", "\ufffd", "\ue000",
	} {
		if got := Safe(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// Each of these, printed as it is, does something to a terminal or to what its reader sees.
func TestAdversarialTextIsMadeVisible(t *testing.T) {
	t.Parallel()
	for name, c := range adversarial {
		if got := Safe(c.text); got != c.want {
			t.Errorf("%s: %q became %q, not %q", name, c.text, got, c.want)
		}
	}
}

var adversarial = map[string]struct{ text, want string }{
	"colours":                      {"\x1b[31mred\x1b[0m", "^[[31mred^[[0m"},
	"clearing the screen":          {"\x1b[2J\x1b[H", "^[[2J^[[H"},
	"moving over earlier lines":    {"\x1b[5A\x1b[Kfake", "^[[5A^[[Kfake"},
	"the alternate screen":         {"\x1b[?1049h", "^[[?1049h"},
	"a full reset":                 {"\x1bc", "^[c"},
	"a window title":               {"\x1b]0;title\x07", "^[]0;title^G"},
	"a title, ended by ST":         {"\x1b]2;title\x1b\\", "^[]2;title^[\\"},
	"the clipboard":                {"\x1b]52;c;cm0gLXJmIC8=\x07", "^[]52;c;cm0gLXJmIC8=^G"},
	"a link that says other":       {"\x1b]8;;http://evil\x1b\\ok\x1b]8;;\x1b\\", "^[]8;;http://evil^[\\ok^[]8;;^[\\"},
	"a report typed as input":      {"\x1b[6n\x1b[c\x1b[21t", "^[[6n^[[c^[[21t"},
	"a device control string":      {"\x1bP$q\"p\x1b\\", "^[P$q\"p^[\\"},
	"an application's command":     {"\x1b_Gf=100;AAAA\x1b\\", "^[_Gf=100;AAAA^[\\"},
	"a privacy message":            {"\x1b^x\x1b\\", "^[^x^[\\"},
	"another character set":        {"\x0e\x1b(0qqq\x0f", "^N^[(0qqq^O"},
	"an escape cut by the end":     {"text\x1b", "text^["},
	"an escape in an escape":       {"\x1b[\x1b[31m", "^[[^[[31m"},
	"C1 in UTF-8":                  {"\u009b31m\u009d0;t\u009c", "<U+009B>31m<U+009D>0;t<U+009C>"},
	"C1 as single bytes":           {"\x9b31m\x9d0;t\x9c", "<9B>31m<9D>0;t<9C>"},
	"a next-line character":        {"a\u0085b", "a<U+0085>b"},
	"overwriting a line":           {"rm -rf /\rls      ", "rm -rf /^Mls      "},
	"a progress bar":               {"10%\r20%\r\n", "10%^M20%\r\n"},
	"carriage returns in a row":    {"a\r\r\n", "a^M\r\n"},
	"a carriage return at the end": {"a\r", "a^M"},
	"backspaces":                   {"evil\b\b\b\bgood", "evil^H^H^H^Hgood"},
	"a bell":                       {"\a", "^G"},
	"a NUL":                        {"a\x00b", "a^@b"},
	"a form feed and a tab stop":   {"\f\v", "^L^K"},
	"a delete":                     {"a\x7f", "a^?"},
	"an override":                  {"user\u202etxt.exe", "user<U+202E>txt.exe"},
	"embeddings and isolates":      {"\u202a\u202b\u202c\u202d\u2066\u2067\u2068\u2069", "<U+202A><U+202B><U+202C><U+202D><U+2066><U+2067><U+2068><U+2069>"},
	"direction marks":              {"\u200e\u200f\u061c", "<U+200E><U+200F><U+061C>"},
	"separators of lines":          {"a\u2028b\u2029c", "a<U+2028>b<U+2029>c"},
	"characters that can't be seen": {
		"a\u200bb\u2060c\ufeffd\u00ade", "a<U+200B>b<U+2060>c<U+FEFF>d<U+00AD>e",
	},
	"blank letters":               {"a\u034fb\u115f\u1160\u3164\uffa0\u2800", "a<U+034F>b<U+115F><U+1160><U+3164><U+FFA0><U+2800>"},
	"ASCII in invisible tags":     {"\U000e0041\U000e0042", "<U+E0041><U+E0042>"},
	"annotations":                 {"\ufff9a\ufffab\ufffb", "<U+FFF9>a<U+FFFA>b<U+FFFB>"},
	"an overlong escape":          {"\xc0\x9b[31m", "<C0><9B>[31m"},
	"an overlong newline":         {"\xe0\x80\x8a", "<E0><80><8A>"},
	"half of a surrogate pair":    {"\xed\xa0\x80", "<ED><A0><80>"},
	"beyond Unicode":              {"\xf4\x90\x80\x80", "<F4><90><80><80>"},
	"a cut character":             {"\xe2\x82", "<E2><82>"},
	"a cut character and escape":  {"\xe2\x82\x1b[31m", "<E2><82>^[[31m"},
	"an escape inside characters": {"\xf0\x9d\x1b\x84\x9e", "<F0><9D>^[<84><9E>"},
	"bytes that are never UTF-8":  {"\xff\xfe", "<FF><FE>"},
}

func TestWhatIsDecidedAboutHasNothingHidden(t *testing.T) {
	t.Parallel()
	const text, want = "a\ufe0fb\U000e0100c\u200dd\u200ce\x1b é", "a<U+FE0F>b<U+E0100>c<U+200D>d<U+200C>e^[ é"
	if got := SafeStrict(text); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if Safe("❤\ufe0f") != "❤\ufe0f" {
		t.Error("emoji are broken in ordinary text")
	}
}

func TestSafeLineHasOneLine(t *testing.T) {
	t.Parallel()
	if got, want := SafeLine("a\nb\r\nc\td\re\x1b"), "a b c d^Me^["; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The result is the same however the text is split, and nothing is held back for longer than needed.
func TestWritesMayCutCharactersAndSequences(t *testing.T) {
	t.Parallel()
	for name, c := range adversarial {
		for size := 1; size <= 4; size++ {
			if got := written(t, c.text, size); got != c.want {
				t.Errorf("%s in pieces of %d: %q, not %q", name, size, got, c.want)
			}
		}
	}
}

// written is what arrives of a text that is written in pieces.
func written(t *testing.T, text string, size int) string {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out)
	for rest := []byte(text); len(rest) > 0; {
		piece := rest[:min(size, len(rest))]
		if n, err := w.Write(piece); n != len(piece) || err != nil {
			t.Fatalf("wrote %d of %d bytes: %v", n, len(piece), err)
		}
		if len(w.pending) >= utf8.UTFMax {
			t.Fatalf("%q is held back", w.pending)
		}
		rest = rest[len(piece):]
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestOnlyAnIncompleteEndIsHeldBack(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"prompt> ": "prompt> ", "line\n": "line\n", "\x1b": "^[", "\x1b[": "^[[", "a\r": "a", "a\xe2\x82": "a", "a\xff": "a<FF>", "\r\n": "\r\n",
	} {
		var out bytes.Buffer
		if _, err := NewWriter(&out).Write([]byte(text)); err != nil || out.String() != want {
			t.Errorf("%q: %q came through, not %q (%v)", text, out.String(), want, err)
		}
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

func TestAFailedWriteIsReported(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	w := NewWriter(failingWriter{broken})
	if n, err := w.Write([]byte("x")); n != 0 || !errors.Is(err, broken) {
		t.Errorf("Write: %d, %v", n, err)
	}
	if _, err := w.Write([]byte("\r")); err != nil {
		t.Errorf("nothing was passed on: %v", err)
	}
	if err := w.Flush(); !errors.Is(err, broken) {
		t.Errorf("Flush: %v", err)
	}
	if err := w.Flush(); err != nil {
		t.Errorf("Flush with nothing held back: %v", err)
	}
}

// A command's output and messages about it come from different goroutines.
func TestConcurrentWritesStayWhole(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := NewWriter(&out)
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			for range 200 {
				fmt.Fprintf(w, "\x1b%d€\n", i)
			}
		})
	}
	running.Wait()
	for line := range strings.Lines(out.String()) {
		if len(line) != len("^[0€\n") || !strings.HasPrefix(line, "^[") || !strings.HasSuffix(line, "€\n") {
			t.Fatalf("got %q", line)
		}
	}
}

func TestFilesAndBuffersAreNoTerminals(t *testing.T) {
	t.Parallel()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, w := range []io.Writer{file, &bytes.Buffer{}, io.Discard} {
		if Is(w) {
			t.Errorf("%T is taken for a terminal", w)
		}
	}
}

// reference decides for each character by its Unicode category alone.
func reference(text string) string {
	var b strings.Builder
	lines := strings.Split(text, "\r\n")
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		for at, r := range line {
			switch {
			case r == utf8.RuneError && !strings.HasPrefix(line[at:], string(utf8.RuneError)):
				fmt.Fprintf(&b, "<%02X>", line[at])
			case r < 0x80 && r != '\n' && r != '\t' && unicode.IsControl(r):
				fmt.Fprintf(&b, "^%c", r^0x40)
			case r >= 0x80 && (unicode.IsControl(r) || hidden(r)):
				fmt.Fprintf(&b, "<U+%04X>", r)
			default:
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}

func hidden(r rune) bool {
	if unicode.Is(unicode.Join_Control, r) || unicode.Is(unicode.Prepended_Concatenation_Mark, r) {
		return false
	}
	return strings.ContainsRune(blank, r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) || unicode.Is(unicode.Bidi_Control, r)
}

func FuzzWriter(f *testing.F) {
	for _, c := range adversarial {
		f.Add(c.text, uint8(1))
	}
	f.Add("ünï \xe2\x82\xac\r\n\r\x1b", uint8(3))
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		safe := Safe(text)
		if want := reference(text); safe != want {
			t.Errorf("%q became %q, not %q", text, safe, want)
		}
		if got := written(t, text, 1+int(size)%64); got != safe {
			t.Errorf("%q in pieces became %q, not %q", text, got, safe)
		}
		if again := Safe(safe); again != safe {
			t.Errorf("%q isn't stable, it becomes %q", safe, again)
		}
		for _, r := range strings.ReplaceAll(safe, "\r\n", "\n") {
			if r != '\n' && r != '\t' && (unicode.IsControl(r) || hidden(r)) {
				t.Errorf("%U is left in %q", r, safe)
			}
		}
		if line := SafeLine(text); strings.ContainsAny(line, "\n\r\t") {
			t.Errorf("%q is more than one line", line)
		}
	})
}
