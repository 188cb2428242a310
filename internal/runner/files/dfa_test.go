package files

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

func newTestDFA(t testing.TB, expr string, limit int) *lineDFA {
	t.Helper()
	p, err := newDFAProgram(expr)
	if err != nil {
		t.Fatal(err)
	}
	return newLineDFA(p, limit)
}

// passing returns the numbers of the lines that may match.
func (d *lineDFA) passing(content string) (numbers []int) {
	for at := 0; at < len(content); {
		found := d.find([]byte(content[at:]))
		if found < 0 {
			break
		}
		found += at
		numbers = append(numbers, strings.Count(content[:found], "\n")+1)
		feed := strings.IndexByte(content[found:], '\n')
		if feed < 0 {
			break
		}
		at = found + feed + 1
	}
	return numbers
}

// matching returns the numbers of the lines that an expression matches.
func matching(expr *regexp.Regexp, content string) (numbers []int) {
	for i, line := range strings.SplitAfter(content, "\n") {
		line, _ := strings.CutSuffix(line, "\n")
		before, isReturn := strings.CutSuffix(line, "\r")
		isLine := line != "" || !strings.HasSuffix("\n"+content, "\n") || i < strings.Count(content, "\n")
		if isLine && (expr.MatchString(line) || isReturn && expr.MatchString(before)) {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

func TestLineDFA(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, expr, content string
		want                []int
	}{
		{"a class", `[0-9]+x`, "a\n1\n12x\nx1\n3x", []int{3, 5}},
		{"the start of each line", `^b`, "b\nab\nb", []int{1, 3}},
		{"the start of the text is that of a line", `\Ab`, "b\nab\nb", []int{1, 3}},
		{"the end of each line", `b$`, "b\nba\nab", []int{1, 3}},
		{"the end before a carriage return", `b$`, "b\r\nb\ra\nb\r", []int{1, 3}},
		{"only one carriage return is left out", `b$`, "b\r\r\nb\r\n", []int{2}},
		{"a carriage return", `b\r$`, "b\r\nb\nb\r\r\n", []int{1, 3}},
		{"empty lines", `^$`, "\n\r\na\n", []int{1, 2}},
		{"nothing behind the last line feed", `^$`, "a\n", nil},
		{"never a line feed", `a(?s:.)b|a\nb|a[^c]b`, "a\nb\naxb\n", []int{3}},
		{"the boundary of a word", `\bb\b`, "ab\nb\na b\nb_\n", []int{2, 3}},
		{"inside of a word", `\Bb\B`, "ab\nb\nabc\n", []int{3}},
		{"a letter that isn't ASCII is no part of a word", `\bb\b`, "éb\n", []int{1}},
		{"any case", `(?i)[a]b`, "AB\naB\nba\n", []int{1, 2}},
		{"any case, outside of ASCII", `(?i)[k]|s`, "\u212a\nſ\nx\n", []int{1, 2}},
		{"a character of several bytes is one", `^.$`, "é\néé\n", []int{1}},
		{"a byte that isn't UTF-8 is a character", `^..$`, "\xff\n\xff\xff\n\xc3\xff\n\xe2\x82\n", []int{2, 3, 4}},
		{"a character cut by the line's end", `^.a$`, "\xe2\na\xe2\n\xe2a\n", []int{3}},
		{"one character outside of ASCII for another", `^é$`, "è\ne\nee\n", []int{1}},
		{"nothing matches", `[^\x00-\x{10FFFF}]`, "a\n\né", nil},
		{"everything matches", `x*`, "a\n\né", []int{1, 2, 3}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := newTestDFA(t, test.expr, maxStateBytes).passing(test.content); !slices.Equal(got, test.want) {
				t.Errorf("lines %v, want %v", got, test.want)
			}
		})
	}
}

// TestLineDFAForgetsStates has room for one state at a time, in a text that leads to many.
func TestLineDFAForgetsStates(t *testing.T) {
	t.Parallel()
	const expr = `a[ab]{6}c`
	content := randomLines(4000)
	d := newTestDFA(t, expr, 1)
	d.credit = 1 << 40
	want := matching(regexp.MustCompile(expr), content)
	if got := d.passing(content); !slices.Equal(got, want) || len(want) == 0 || d.resets < 1000 {
		t.Errorf("%d lines, want %d; states were forgotten %d times", len(got), len(want), d.resets)
	}
}

// randomLines returns lines of the letters a, b and, rarely, c.
func randomLines(count int) string {
	random := rand.New(rand.NewPCG(3, 4))
	var text strings.Builder
	for range count {
		for range 20 {
			text.WriteByte("aaaaaaabbbbbbbbc"[random.IntN(16)])
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// hostile are expressions with many states, or with states that are large.
var hostile = map[string]string{
	"a state for each combination of letters": `[ab]*a[ab]{200}c`,
	"large states":       `(?:a?){1000}(?:a?b?){1000}c{3}`,
	"many classes":       strings.Repeat(`[^\pL]?[a-c]`, 20) + `c{3}`,
	"nested repetitions": `(?:(?:(?:a{1,5}b?){1,5}){1,5}b){1,5}c{3}`,
	"many alternatives":  `(?:` + strings.Repeat(`[ab]{7}a|[ba]{9}b|`, 60) + `cc)c`,
}

func TestLineDFAIsBounded(t *testing.T) {
	t.Parallel()
	content := []byte(randomLines(2000))
	for name, expr := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const limit = 64 << 10
			d := newTestDFA(t, expr, limit)
			// The most that building one transition costs: two visits of all instructions.
			most := 2*(len(d.inst)+len(d.seen)) + buildCost
			for range 50 {
				d.addCredit(len(content))
				d.find(content)
				held := 4*len(d.next) + len(d.sets)*stateOverhead
				for _, set := range d.sets {
					held += len(set)
				}
				if largest := 4*d.width() + 4*len(d.inst) + 2*stateOverhead; held > max(limit, largest)+largest {
					t.Fatalf("%d bytes of states", held)
				}
				if d.credit < -most || len(d.rows) != len(d.sets)-1 {
					t.Fatalf("credit %d of at least %d, %d states of %d", d.credit, -most, len(d.rows), len(d.sets)-1)
				}
			}
		})
	}
}

func TestLineDFAWithoutCreditLetsEveryLinePass(t *testing.T) {
	t.Parallel()
	d := newTestDFA(t, `[ab]*a[ab]{200}c`, maxStateBytes)
	content := randomLines(3000)
	for range 20 {
		d.passing(content)
	}
	if got := d.passing(content); d.credit > 0 || len(got) != 3000 {
		t.Fatalf("credit %d, %d lines", d.credit, len(got))
	}
	d.addCredit(maxCredit)
	if d.find([]byte("\n\nab\n")) >= 0 {
		t.Error("lines that don't match still pass")
	}
}

// TestLineDFAPaysForBuildingOnly has more text than credit.
func TestLineDFAPaysForBuildingOnly(t *testing.T) {
	t.Parallel()
	d := newTestDFA(t, `[x-z][0-9]`, maxStateBytes)
	content := bytes.Repeat([]byte("a line of text, é\n"), 1<<12)
	d.credit = 1000
	for range 64 {
		if at := d.find(content); at >= 0 {
			t.Fatalf("place %d, credit %d", at, d.credit)
		}
	}
}

// TestLineDFAOnRandomExpressions is FuzzLineDFA with expressions that are always valid.
func TestLineDFAOnRandomExpressions(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	characters := []string{"a", "b", "k", "S", "0", "_", " ", "-", "\n", "\n", "\r\n", "\r", "é", "ſ", "\u212a", "\ufffd", "\xff", "\xe2", "世"}
	for range 4000 {
		expr, content := randomExpression(random, 3), ""
		for range random.IntN(30) {
			content += characters[random.IntN(len(characters))]
		}
		compareLines(t, expr, content, random.IntN(2000))
	}
}

// randomExpression nests operators to a depth.
func randomExpression(random *rand.Rand, depth int) string {
	atoms := []string{"a", "b", "[ak]", "[^a]", ".", `\w`, `\W`, `\d`, `\s`, "é", "[^é]", `\pL`, "(?i:[k])", "(?i:s)", "(?s:.)", "\ufffd",
		`\n`, `\r`, "0", "^", "$", `\b`, `\B`, `\A`, `\z`, "(?m:^)", "(?m:$)", ""}
	if depth == 0 {
		return atoms[random.IntN(len(atoms))]
	}
	sub := func() string { return randomExpression(random, depth-1) }
	switch random.IntN(4) {
	case 0:
		return "(?:" + sub() + "|" + sub() + ")"
	case 1:
		return "(?:" + sub() + ")" + []string{"*", "+", "?", "*?", "{2}", "{1,3}", "{0,2}?"}[random.IntN(7)]
	default:
		return sub() + sub()
	}
}

// compareLines holds the lines that pass to those that match: all of these, and no other where all characters are ASCII.
func compareLines(t *testing.T, expr, content string, limit int) {
	t.Helper()
	p, err := compilePattern(expr, false)
	if err != nil || p.filter == nil {
		return
	}
	d := newLineDFA(p.filter, limit)
	got, want := d.passing(content), matching(regexp.MustCompile(expr), content)
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("%q in %q: lines %v, want %v", expr, content, got, want)
		}
	}
	isASCII := !strings.ContainsFunc(content, func(c rune) bool { return c > unicode.MaxASCII })
	if isASCII && d.credit > 0 && len(got) != len(want) {
		t.Errorf("%q in %q: lines %v, want only %v", expr, content, got, want)
	}
}

func TestSearchedFilesGiveCredit(t *testing.T) {
	t.Parallel()
	p, err := compilePattern(`[x-z][0-9]`, false)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(newWorld(t).file("f", strings.Repeat("text\n", 2000)))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := testSearcher(t, p)
	s.filter.credit = -1000
	if _, err := s.file(int(file.Fd()), "f", 10_000); err != nil || s.filter.credit <= 0 {
		t.Errorf("credit %d, %v", s.filter.credit, err)
	}
}

// FuzzLineDFA compares lines for any expression that compiles.
func FuzzLineDFA(f *testing.F) {
	for _, seed := range []string{
		"a+b$\x00xaab\nab\r\n", `\bé?\B` + "\x00é\n\xffa\n", "(?i)[k-s]x\x00\u212aX\nſx\n", "^$|^\r$\x00\n\r\n\r\r\n", "(?m)^a$(?s).\x00a\nb\n",
		"[^a]{2,3}$\x00b\xe2\x82\nbb\r", "(a|b)*a(a|b){3}\x00abababbabab\nbbb\n", "\ufffd\x00\xff\n\ufffd", `\D\S\W\z` + "\x001 a\n---\n",
	} {
		for _, limit := range []uint16{0, 300, 60000} {
			f.Add(seed, limit)
		}
	}
	f.Fuzz(func(t *testing.T, data string, limit uint16) {
		text, content, _ := strings.Cut(data, "\x00")
		compareLines(t, text, content, int(limit))
	})
}

// FuzzFilteredGrep holds a search to one that matches every line, in a buffer that may be shorter than a line.
func FuzzFilteredGrep(f *testing.F) {
	for _, seed := range []string{
		"[a-c]+$\x00xab\nab\r\n\nccc", "x[0-9]\x00x1\nax2 x3\r\nx\n", "^$\x00\n\r\na\n", `\bé|é\b` + "\x00aé\n\xffé\n", "(?i)s[k]\x00ſ\u212a\nSk\n",
		"[^a]$\x00" + strings.Repeat("a", 300) + "b\r\nb\r", "[ab]*a[ab]{9}c\x00" + strings.Repeat("abaabbab", 20) + "c\n",
	} {
		for _, size := range []uint16{4, 64, 512} {
			f.Add(seed, size)
		}
	}
	f.Fuzz(func(t *testing.T, data string, size uint16) {
		text, content, _ := strings.Cut(data, "\x00")
		p, err := compilePattern(text, false)
		if err != nil || p.filter == nil {
			return
		}
		path := newWorld(t).file("f", content)
		search := func(credit int) hits {
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			s := testSearcher(t, p)
			s.buffer, s.filter.credit = make([]byte, 1+int(size)), credit
			found, err := s.file(int(file.Fd()), "f", int64(len(content)))
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		if diff := cmp.Diff(search(math.MinInt/2), search(maxCredit), cmp.AllowUnexported(hits{}, hit{})); diff != "" {
			t.Errorf("%q in %q: %s", text, content, diff)
		}
	})
}

// testSearcher returns a searcher without bounds.
func testSearcher(t *testing.T, p *pattern) *searcher {
	c := &call{ctx: t.Context(), rules: &compiledRules{maxOutput: math.MaxInt64}, req: &Request{}}
	return c.newSearcher(p, MaxResults)
}
