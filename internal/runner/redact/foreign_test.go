package redact

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
)

func foreign(name, value string) Value {
	return Value{Name: name, Value: []byte(value), Foreign: true}
}

// releases returns what each piece makes a Stream write, and what its end does.
func releases(m *Matcher, pieces []string) []string {
	s := m.NewStream()
	var list []string
	for _, piece := range pieces {
		list = append(list, string(s.Append(nil, []byte(piece))))
	}
	return append(list, string(s.Flush(nil)))
}

// A stream with a foreign value holds back what one with another foreign value does: a guess isn't confirmed until it is whole.
func TestAGuessOfAForeignValueIsTreatedAsAnyText(t *testing.T) {
	t.Parallel()
	with, without := mustNew(t, []Value{foreign("t", secret)}), mustNew(t, []Value{foreign("u", "an unrelated value")})
	for way, encoded := range written(secret) {
		for n := range len(encoded) {
			for _, after := range []string{"", "\n", "\r\n", " ", "%", "\\"} {
				pieces := []string{"a line\nguess: ", encoded[:n] + after, "and", " on\n"}
				if got, want := releases(with, pieces), releases(without, pieces); !slices.Equal(got, want) && !strings.Contains(strings.Join(got, ""), "[redacted: t]") {
					t.Fatalf("of %s %q gives %q, and %q without the value", way, pieces, got, want)
				}
			}
		}
	}
}

func TestALineIsHeldForForeignValuesUntilItEnds(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{foreign("t", secret), {Name: "own", Value: []byte("own-value-1")}})
	tests := map[string]struct{ pieces, want []string }{
		"a line end shows what is before it":    {[]string{"a", "b\nc", "d"}, []string{"", "ab\n", "", "cd"}},
		"a carriage return is a line end":       {[]string{"50%\r", "60%"}, []string{"50%\r", "", "60%"}},
		"a beginning is shown at a line end":    {[]string{"s3cr3t\n", secret[:15] + "\n"}, []string{"s3cr3t\n", secret[:15] + "\n", ""}},
		"the own value's beginning waits":       {[]string{"x\nown-va", "\n", "y"}, []string{"x\n", "own-va\n", "", "y"}},
		"a value in pieces of a line":           {[]string{"x s3cr3t/", "T0ken+x==", " y\n"}, []string{"", "", "x [redacted: t] y\n", ""}},
		"own and foreign values in one line":    {[]string{"own-value-1 " + secret, "\n"}, []string{"", "[redacted: own] [redacted: t]\n", ""}},
		"an empty piece changes nothing":        {[]string{"a", "", "b"}, []string{"", "", "", "ab"}},
		"an own value is found over pieces too": {[]string{"own-", "value-1\n"}, []string{"", "[redacted: own]\n", ""}},
	}
	for name, test := range tests {
		if got := releases(m, test.pieces); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, not %q", name, got, test.want)
		}
	}
}

func TestLinesOfAForeignKeyThatComeOneByOne(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{foreign("key", "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nanother-line-of-it\n-----END KEY-----\n")})
	got := strings.Join(releases(m, []string{"-----BEGIN KEY-----\n", "MIIEvQIBADANBgkqhkiG\n", "  another-line-of-it \n", "-----END KEY-----\n"}), "")
	if want := "-----BEGIN KEY-----\n[redacted: key]\n  [redacted: key] \n-----END KEY-----\n"; got != want {
		t.Errorf("got %q, not %q", got, want)
	}
}

func TestLinesOfAForeignValueInBase64ThatComeOneByOne(t *testing.T) {
	t.Parallel()
	value := strings.Repeat("a foreign value, ", 18) + "!"
	m := mustNew(t, []Value{foreign("t", value)})
	for _, columns := range []int{76, 64} {
		for _, lineEnd := range []string{"\n", "\r\n"} {
			for _, after := range []string{"", "\n", "\r\n"} {
				encoded := wrapAt(base64.StdEncoding.EncodeToString([]byte(value+after)), columns) + "\n"
				lines := strings.SplitAfter(strings.ReplaceAll(encoded, "\n", lineEnd), "\n")
				got := strings.Join(releases(m, lines), "")
				// A character and the padding may stay, which stand for what is after the value, too.
				if n := len(lines) - 1; strings.Count(got, "[redacted: t]") != n || len(got) > n*len("[redacted: t]"+lineEnd)+4 {
					t.Errorf("%q became %q", lines, got)
				}
			}
		}
	}
}

func TestALongLineIsHeldBackInPart(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{foreign("t", secret)})
	s := m.NewStream()
	var out []byte
	for range 300 {
		out = s.Append(out, bytes.Repeat([]byte("."), 1000))
	}
	if s.pending() != minHeldLine || len(out) != 300_000-minHeldLine {
		t.Errorf("%d bytes are held back, and %d written", s.pending(), len(out))
	}
	out = s.Flush(s.Append(out, []byte(secret)))
	if want := strings.Repeat(".", 300_000) + "[redacted: t]"; string(out) != want {
		t.Errorf("%d bytes are written", len(out))
	}
}
