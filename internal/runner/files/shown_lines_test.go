package files

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/internal/runner/files/sys"
	"toolcall.dev/operator/internal/runner/redact"
	"toolcall.dev/operator/internal/spec"
)

// hiddenTexts are values that one line or several have. None can overlap another.
var hiddenTexts = []string{"one-line-value", "first line\nsecond line", "2nd-line\nlast", "a\nb\nc\nd\ne\nf\ng\nh\nend of letters", "value\n\n\nwith empty lines"}

const hiddenMark = "[redacted: TOKEN]"

// hiddenSpans are where the values are, those that overlap as one.
func hiddenSpans(text string) (spans []sys.Span) {
	for _, value := range hiddenTexts {
		for at := 0; ; at++ {
			next := strings.Index(text[at:], value)
			if next < 0 {
				break
			}
			at += next
			spans = append(spans, sys.Span{Start: int64(at), End: int64(at + len(value))})
		}
	}
	slices.SortFunc(spans, func(a, b sys.Span) int { return int(a.Start - b.Start) })
	n := 0
	for _, one := range spans {
		if n > 0 && one.Start < spans[n-1].End {
			spans[n-1].End = max(spans[n-1].End, one.End)
			continue
		}
		spans[n] = one
		n++
	}
	return spans[:n]
}

func hideTexts(text []byte) (all []redact.Span) {
	for _, one := range hiddenSpans(string(text)) {
		all = append(all, redact.Span{Start: int(one.Start), End: int(one.End), Name: "TOKEN", Mark: []byte(hiddenMark)})
	}
	return all
}

// shownLine is what a Grep shows of a line: a mark for each value or part of one.
func shownLine(text string, line sys.Span, spans []sys.Span) (shown string) {
	at := line.Start
	for _, one := range spans {
		if one.End > line.Start && one.Start < line.End {
			shown += text[at:max(one.Start, at)] + cutMark
			at = min(one.End, line.End)
		}
	}
	return shown + text[at:line.End]
}

// textWithValues is made of plain lines, values and beginnings of values, alone in their lines or among others.
func textWithValues(r *rand.Rand, size int) string {
	var text strings.Builder
	for text.Len() < size {
		value := hiddenTexts[r.IntN(len(hiddenTexts))]
		switch r.IntN(5) {
		case 0:
			text.WriteString(value)
		case 4:
			text.WriteString(value[:r.IntN(len(value))])
		case 1:
			text.WriteString(strings.Repeat("plain ", r.IntN(10)))
		case 2:
			for range r.IntN(40) {
				text.WriteString("a plain line\n")
			}
		}
		if r.IntN(3) > 0 {
			text.WriteByte('\n')
		}
	}
	return text.String()
}

func TestALineIsShownAsTheWholeFileSaysIt(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(18, 18))
	for round := range 60 {
		size := r.IntN(20_000)
		if round%10 == 0 {
			size = searchBytes + r.IntN(searchBytes)
		}
		text := textWithValues(r, size)
		spans, w := hiddenSpans(text), newWorld(t)
		w.file("f", text)
		w.rules.Hidden, w.rules.HiddenAround = hideTexts, 64*HiddenForm
		// Those that have an e at an even number of bytes, as far as one Grep returns them.
		pattern, start := "^(..)*e", int64(0)
		var want []string
		for line := range strings.Lines(text) {
			end := start + int64(len(strings.TrimSuffix(line, "\n")))
			if hasEvenE(line) && len(want) < MaxResults {
				want = append(want, shownLine(text, sys.Span{Start: start, End: end}, spans))
			}
			start += int64(len(line))
		}
		out, _ := w.must(spec.File{Operation: spec.OperationGrep, Path: "f", Pattern: pattern})
		got := paths(decode[Match](t, out), func(m Match) string { return strings.ReplaceAll(m.Line, hiddenMark, cutMark) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("round %d: %s", round, diff)
		}
	}
}

func hasEvenE(line string) bool {
	for i := 2; i < len(line); i += 2 {
		if line[i] == 'e' {
			return true
		}
	}
	return strings.HasPrefix(line, "e")
}

// A Grep asks for what is shown of the text around its matches, not of the whole file, and not once more for each line.
func TestAGrepAsksForLittleOfAFile(t *testing.T) {
	t.Parallel()
	const around = 3000
	lines := slices.Repeat([]string{strings.Repeat("a plain line ", 5)}, 20_000)
	near := slices.Clone(lines)
	for i := range 100 {
		lines[50+i*190] = "MATCH"
		near[7000+2*i] = "MATCH"
	}
	near[7099] = shownSecret
	for name, test := range map[string]struct {
		lines []string
		most  int
	}{
		"matches that are far from each other": {lines, 100 * 2 * (around + 100)},
		"matches that are near a value":        {near, 100*2*70 + 2*(around+100)},
	} {
		asked := 0
		w := showing(t, hiddenMark, strings.Join(test.lines, "\n"))
		w.rules.HiddenAround = around
		hide := w.rules.Hidden
		w.rules.Hidden = func(text []byte) []redact.Span {
			if !bytes.HasPrefix(text, []byte("{")) {
				asked += len(text)
			}
			return hide(text)
		}
		if _, result := w.must(spec.File{Operation: spec.OperationGrep, Path: "f", Pattern: "MATCH"}); number(result.Matches) != 100 || asked > test.most {
			t.Errorf("%s: %d matches, asked for %d bytes, more than %d", name, number(result.Matches), asked, test.most)
		}
	}
}

// What is shown can be shorter than what is in the file: then more lines have room.
func TestAGrepFillsItsOutputWithWhatIsShown(t *testing.T) {
	t.Parallel()
	line := strings.Repeat(shownSecret, 20)
	w := showing(t, "-", strings.Repeat(line+"\n", 500))
	w.rules.MaxOutputBytes = 10_000
	out, result := w.must(spec.File{Operation: spec.OperationGrep, Path: "f", Pattern: "."})
	if want := fmt.Sprintf(`"line":"%s"`, strings.Repeat("-", 20)); strings.Count(out, want) != number(result.Matches) || !result.Truncated || len(out) < 9_900 {
		t.Errorf("%d bytes, %+v", len(out), result)
	}
}
