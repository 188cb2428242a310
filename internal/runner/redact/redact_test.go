package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const secret = "s3cr3t/T0ken+x=="

func textOf(m *Matcher, text string) string {
	out, _ := m.Text(text)
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
		"base64 of a user and a password": {"dXNlcjpzM2NyM3QvVDBrZW4reD09", "dXNlcj[redacted: t]"},
		"base64 over lines":               {"czNjcjN0L1\nQwa2VuK3g9PQ==\n", "[redacted: t]==\n"},
		"base64 with an empty line":       {"czNjcjN0L1\n\nQwa2VuK3g9PQ==", "czNjcjN0L1\n\nQwa2VuK3g9PQ=="},
		"hexadecimal":                     {"x733363723374 7333637233742f54306b656e2b783d3d0", "x733363723374 [redacted: t]0"},
		"upper hexadecimal":               {"7333637233742F54306B656E2B783D3D", "[redacted: t]"},
		"a query":                         {"?t=s3cr3t%2FT0ken%2Bx%3D%3D&u=1", "?t=[redacted: t]&u=1"},
		"a query, some of it encoded":     {"?t=s3cr3t/T0%6ben%2bx==&u=1", "?t=[redacted: t]&u=1"},
		"JSON of PHP":                     {`"s3cr3t\/T0ken+x=="`, `"[redacted: t]"`},
		"JSON with all escaped":           {`\u00733cr3t\u002fT0ken\u002Bx==`, `[redacted: t]`},
		"JSON in JSON":                    {`\\u00733cr3t\\\/T0ken\\u002Bx==`, `[redacted: t]`},
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

func TestALineMayEndAnywhereInDigits(t *testing.T) {
	t.Parallel()
	const value = "0123456789 a value of some length, longer than a window"
	m := mustNew(t, []Value{{Name: "t", Value: []byte(value)}})
	for _, before := range []string{"", "x", "xy"} {
		encoded := []string{base64.StdEncoding.EncodeToString([]byte(before + value)), hex.EncodeToString([]byte(before + value))}
		for _, digits := range encoded {
			for at := range len(digits) + 1 {
				text := "key: " + digits[:at] + "\n" + digits[at:] + ", and more of the text"
				if got := textOf(m, text); leftOf(value, []byte(got)) != "" || strings.Count(got, "[redacted: t]") != 1 {
					t.Errorf("%q became %q", text, got)
				}
			}
		}
	}
}

func TestOtherFormsOfAValueCount(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{
		{Name: "key", Value: []byte("-----BEGIN KEY-----\nQUJD REVG\n-----END KEY-----\n\n")},
		{Name: "url", Value: []byte("p%40ss:w%2Frd")}, {Name: "bytes", Value: []byte("binary\xff\xe9 value")},
	})
	for text, want := range map[string]string{
		"-----BEGIN KEY-----\nQUJD REVG\n-----END KEY-----\n":       "[redacted: key]\n",
		"-----BEGIN KEY-----\r\nQUJD REVG\r\n-----END KEY-----\r\n": "[redacted: key]\r\n",
		"-----BEGIN KEY----- QUJD REVG -----END KEY-----":           "[redacted: key]",
		`-----BEGIN KEY-----\nQUJD REVG\n-----END KEY-----\n`:       `[redacted: key]\n`,
		"-----BEGIN+KEY-----%0AQUJD+REVG%0a-----END+KEY-----":       "[redacted: key]",
		"p%40ss:w%2Frd":            "[redacted: url]",
		"p%2540ss%3Aw%252Frd":      "[redacted: url]",
		"p@ss:w/rd":                "[redacted: url]",
		`binary\udcff\udce9 value`: "[redacted: bytes]",
		`binary\u00ff\u00e9 value`: "[redacted: bytes]",
		`binary\ufffd\ufffd value`: "[redacted: bytes]",
		"QUJD REVG":                "QUJD REVG",
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
	if string(out) != secret || stream.Pending() != 0 {
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
		"too many":              many(MaxValues+1, []byte("12345678")),
		"one too long":          {{Name: "n", Value: append(value, 'v')}},
		"too long together":     many(MaxTotalLength/MaxLength+1, value),
		"no name":               {{Name: "", Value: value}},
		"a name with a bracket": {{Name: "a]", Value: value}},
		"a name with a line":    {{Name: "a\nb", Value: value}},
		"a name too long":       {{Name: strings.Repeat("n", maxNameLength+1), Value: value}},
	} {
		_, err := New(values)
		if err == nil {
			t.Errorf("a list with %s is taken", name)
		} else if strings.Contains(err.Error(), "vvvv") {
			t.Errorf("the error of a list with %s has a value", name)
		}
	}
	for name, values := range map[string][]Value{
		"as long as possible":                 many(MaxTotalLength/MaxLength, value),
		"of a name as long as the API allows": {{Name: strings.Repeat("n", 256), Value: value}},
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

func TestOnlyThePossibleBeginningOfAValueIsHeldBack(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{{Name: "t", Value: []byte(secret)}})
	for text, want := range map[string]int{
		"":                     0,
		"$ ":                   0,
		"password: ":           0,
		"it costs 100":         0,
		"it is s":              1,
		"it is s3cr":           4,
		"it is " + secret[:15]: 15,
		"it is " + secret:      0,
		"100%":                 1,
		"100%7":                2,
		`C:\`:                  1,
		"x 73336372":           8,
		"x 7333637":            7,
		"x 733":                0,
		"x 7333":               4,
		"x cz":                 0,
		"x czN":                3,
		"x czN\n":              0,
		"x czNj\n":             5,
		"user s3cr3t ":         0,
		"line\n":               0,
	} {
		s := m.NewStream()
		out := s.Append(nil, []byte(text))
		if got := s.Pending(); got != want || !strings.Contains(text, secret) && string(out) != text[:len(text)-want] {
			t.Errorf("of %q %d bytes are held back, not %d, and %q is written", text, got, want, out)
		}
	}
}

func TestAFlushEndsATextAndBeginsAnother(t *testing.T) {
	t.Parallel()
	stream := mustNew(t, []Value{{Name: "t", Value: []byte(secret)}}).NewStream()
	var out []byte
	for _, piece := range []string{"a " + secret[:10], secret[10:] + "%", "b" + secret} {
		out = stream.Flush(stream.Append(out, []byte(piece)))
		if stream.Pending() != 0 {
			t.Fatal(stream.Pending())
		}
	}
	if want := "a " + secret + "%b[redacted: t]"; string(out) != want {
		t.Errorf("got %q, not %q", out, want)
	}
}

// TestEncodingsInAnyPiecesLeaveNothing looks for what stays of a value, without regard to how it is found.
func TestEncodingsInAnyPiecesLeaveNothing(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"token": secret, "words": "correct horse battery staple", "letters": "Tr0ub4dor&3<x>\"'\\/", "unicode": "pässwörd-😀-密码密码",
		"key": "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\n-----END KEY-----", "bytes": "\x00\x01\xfe\xff\x80binary\x7f", "eight": "zZ9$%41+",
	}
	for name, value := range values {
		m := mustNew(t, []Value{{Name: name, Value: []byte(value)}, {Name: "other", Value: []byte("another value")}})
		for _, encoding := range slices.Sorted(maps.Keys(encodings)) {
			for seed := range uint64(12) {
				r := rand.New(rand.NewPCG(seed, 3))
				encoded := encodings[encoding]([]byte(value), r)
				text := []byte("before: \"" + encoded + "\", after")
				got := inPieces(m, text, r)
				if leak := leftOf(value, got); leak != "" {
					t.Fatalf("%s of %s leaves %q in %q, of %q", encoding, name, leak, got, text)
				}
				if !bytes.Contains(got, []byte("[redacted: "+name+"]")) || !bytes.HasPrefix(got, []byte("before: \"")) || !bytes.HasSuffix(got, []byte("\", after")) {
					t.Fatalf("%s of %s: %q became %q", encoding, name, text, got)
				}
			}
		}
	}
}

// leftOf returns eight bytes of a value that are left in a text, in any of its views.
func leftOf(value string, text []byte) string {
	text = bytes.ReplaceAll(text, []byte("[redacted: "), []byte("\x00\x00\x00"))
	for _, view := range views(text, true) {
		for i := range len(value) - MinLength + 1 {
			if bytes.Contains(view.text, []byte(value[i:i+MinLength])) {
				return value[i : i+MinLength]
			}
		}
	}
	return ""
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
