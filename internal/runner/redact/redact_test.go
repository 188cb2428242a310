package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const secret = "s3cr3t/T0ken+x=="

// textOf returns what Text does, and makes sure that Spans says the same.
func textOf(m *Matcher, text string) string {
	out, counts := m.Text(text)
	var marked strings.Builder
	at := 0
	var names []string
	for _, s := range m.Spans([]byte(text)) {
		marked.WriteString(text[at:s.Start] + string(s.Mark))
		names = append(names, s.Name)
		at = s.End
	}
	marked.WriteString(text[at:])
	for _, c := range counts {
		names = slices.DeleteFunc(names, func(name string) bool { return name == c.Name })
	}
	if marked.String() != out || len(names) > 0 {
		panic(fmt.Sprintf("of %q, Text shows %q, and the spans show %q", text, out, marked.String()))
	}
	return out
}

func TestKnownValuesAreReplaced(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"nothing to find":                 {"a s3cr3t/T0ken+x= b", "a s3cr3t/T0ken+x= b"},
		"an empty text":                   {"", ""},
		"as it stands":                    {"a " + secret + " b", "a [redacted: t] b"},
		"twice in a row":                  {secret + secret, "[redacted: t][redacted: t]"},
		"base64":                          {"Basic czNjcjN0L1Qwa2VuK3g9PQ==", "Basic [redacted: t]=="},
		"base64 after one byte":           {"XzczNjcjN0L1Qwa2VuK3g9PQ", "Xz[redacted: t]"},
		"base64 of a user and a password": {"dXNlcjpzM2NyM3QvVDBrZW4reD09", "dXNlcjp[redacted: t]"},
		"hexadecimal":                     {"x733363723374 7333637233742f54306b656e2b783d3d0", "x733363723374 [redacted: t]0"},
		"upper hexadecimal":               {"7333637233742F54306B656E2B783D3D", "[redacted: t]"},
		"a query":                         {"?t=s3cr3t%2FT0ken%2Bx%3D%3D&u=1", "?t=[redacted: t]&u=1"},
		"another letter":                  {"S3cr3t/T0ken+x==", "S3cr3t/T0ken+x=="},
		"a letter less in the middle":     {"s3cr3tT0ken+x==", "s3cr3tT0ken+x=="},
		"between bytes that aren't UTF-8": {"\xff\xfe" + secret + "\x80\x00", "\xff\xfe[redacted: t]\x80\x00"},
		"an escape that is cut":           {"100%", "100%"},
		"a backslash at the end":          {`C:\`, `C:\`},
	}
	m := mustNew(t, []Value{{Name: "t", Value: []byte(secret + "\n")}})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := textOf(m, test.text); got != test.want {
				t.Errorf("%q became %q, not %q", test.text, got, test.want)
			}
		})
	}
}

func TestValuesThatOverlapAreNamedByTheLongest(t *testing.T) {
	t.Parallel()
	values := []Value{
		{Name: "short", Value: []byte("password")}, {Name: "long", Value: []byte("my-password-1")}, {Name: "tail", Value: []byte("word-1-and-more")},
		{Name: "same", Value: []byte("aaaaaaaa")}, {Name: "mark", Value: []byte("[redacted: short]")}, {Name: "pattern", Value: []byte(`.*(a|b)+[^c]$`)}, {Name: "again", Value: []byte("password")},
	}
	m := mustNew(t, values)
	for text, want := range map[string]string{
		"password":                   "[redacted: short]",
		"my-password-1":              "[redacted: long]",
		"my-password-2":              "my-[redacted: short]-2",
		"my-password-1-and-more":     "[redacted: tail]",
		"my-password-1-and-less":     "[redacted: long]-and-less",
		strings.Repeat("a", 7):       "aaaaaaa",
		strings.Repeat("a", 1000):    "[redacted: same]",
		"[redacted: short]password":  "[redacted: mark][redacted: short]",
		`x.*(a|b)+[^c]$y`:            "x[redacted: pattern]y",
		"6d792d70617373776f72642d31": "[redacted: long]",
	} {
		if got := textOf(m, text); got != want {
			t.Errorf("%q became %q, not %q", text, got, want)
		}
	}
}

func TestOfValuesAsLongTheFirstInTheTextNamesTheMark(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{{Name: "second", Value: []byte("FGHIJKLMNO")}, {Name: "first", Value: []byte("ABCDEFGHIJ")}})
	for text, want := range map[string]string{
		"ABCDEFGHIJKLMNO":      "[redacted: first]",
		"FGHIJKLMNOABCDEFGHIJ": "[redacted: second][redacted: first]",
	} {
		if got := textOf(m, text); got != want {
			t.Errorf("%q became %q, not %q", text, got, want)
		}
	}
}

func TestShortValuesAreNotMatched(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{{Name: "seven", Value: []byte("1234567")}, {Name: "eight", Value: []byte("12345678")}, {Name: "line", Value: []byte("7654321\n")}, {Name: "none", Value: nil}})
	if got := textOf(m, "1234567 12345678 7654321\n"); got != "1234567 [redacted: eight] 7654321\n" {
		t.Errorf("got %q", got)
	}
}

func TestNoValuesPassAllText(t *testing.T) {
	t.Parallel()
	stream := mustNew(t, nil).NewStream()
	out := stream.Append(nil, []byte(secret))
	if string(out) != secret {
		t.Errorf("wrote %q", out)
	}
	if out = stream.Flush(out); string(out) != secret || stream.Counts() != nil {
		t.Errorf("then %q", out)
	}
}

func TestMarksAreCounted(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{{Name: "a", Value: []byte("value of a")}, {Name: "b", Value: []byte("value of b")}, {Name: "c", Value: []byte("value of c")}})
	const text = "value of b, value of a, 76616c7565206f662062"
	_, got := m.Bytes([]byte(text))
	_, ofString := m.Text(text)
	if want := []Count{{"a", 1}, {"b", 2}}; !slices.Equal(got, want) || !slices.Equal(ofString, want) {
		t.Errorf("got %v and %v, not %v", got, ofString, want)
	}
}

func TestListsOutOfBoundsAreRefused(t *testing.T) {
	t.Parallel()
	value := bytes.Repeat([]byte("v"), MaxLength)
	many := func(n int, v []byte) (list []Value) {
		for i := range n {
			list = append(list, Value{Name: fmt.Sprint("n", i), Value: v})
		}
		return list
	}
	for name, values := range map[string][]Value{
		"too many":          many(MaxValues+1, []byte("12345678")),
		"one too long":      {{Name: "n", Value: append(value, 'v')}},
		"too long together": many(MaxTotalLength/MaxLength+1, value),
	} {
		_, err := New(values)
		if err == nil {
			t.Errorf("a list with %s is taken", name)
		} else if strings.Contains(err.Error(), "vvvv") {
			t.Errorf("the error of a list with %s has a value", name)
		}
	}
	for name, values := range map[string][]Value{
		"as long as possible":               many(MaxTotalLength/MaxLength, value),
		"of a variable as long as possible": many(1, bytes.Repeat([]byte("v"), 128<<10-len("A="))),
	} {
		if _, err := New(values); err != nil {
			t.Errorf("a list %s: %v", name, err)
		}
	}
}

func TestNothingPrintsAValue(t *testing.T) {
	t.Parallel()
	value := Value{Name: "t", Value: []byte(secret)}
	m := mustNew(t, []Value{value})
	s := m.NewStream()
	s.Append(nil, []byte(secret[:12]))
	for _, one := range []any{value, &value, []Value{value}, m, s, *m, struct{ M *Matcher }{m}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			got := fmt.Sprintf(verb, one)
			for _, leak := range []string{"s3cr", "73336372", "115 51 99", "0x73, 0x33", "s 3 c"} {
				if strings.Contains(strings.ToLower(got), leak) {
					t.Errorf("%T prints with %s as %s", one, verb, got)
				}
			}
		}
	}
	if raw, err := json.Marshal(value); err == nil {
		t.Errorf("a value is written as %s", raw)
	}
}

func TestTextsWithoutAValueStayAsTheyAre(t *testing.T) {
	t.Parallel()
	// Each round has 25 texts, one to a line, since most of the time of a text would be its end.
	rounds := 1_000_000 / 25
	if testing.Short() {
		rounds /= 20
	}
	m := mustNew(t, benchValues())
	r := rand.New(rand.NewPCG(5, 5))
	s := m.NewStream()
	var text, out []byte
	for range rounds {
		text = text[:0]
		for range 25 {
			text = append(fillRandom(text, r), '\n')
		}
		cut := r.IntN(len(text) + 1)
		out = s.Flush(s.Append(s.Append(out[:0], text[:cut]), text[cut:]))
		if !bytes.Equal(out, text) {
			t.Fatalf("%q became %q", text, out)
		}
	}
	if counts := s.Counts(); counts != nil {
		t.Errorf("found %v", counts)
	}
}

// fillRandom makes a text of random bytes, or of letters, digits and escapes.
func fillRandom(text []byte, r *rand.Rand) []byte {
	const letters = `abcdefABCDEF0123456789+/-_=%\u" ` + "\r\n"
	n, isBinary := r.IntN(60), r.IntN(4) == 0
	for range n {
		x := r.Uint32()
		if isBinary {
			text = append(text, byte(x))
			continue
		}
		text = append(text, letters[x%uint32(len(letters))])
	}
	return text
}
