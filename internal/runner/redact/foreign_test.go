package redact

import (
	"bytes"
	"encoding/base64"
	"maps"
	"math/rand/v2"
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

func TestAGuessOfAForeignValueIsTreatedAsAnyText(t *testing.T) {
	t.Parallel()
	with, without := mustNew(t, []Value{foreign("t", secret)}), mustNew(t, []Value{foreign("u", "an unrelated value")})
	r := rand.New(rand.NewPCG(1, 1))
	for _, encoding := range slices.Sorted(maps.Keys(encodings)) {
		encoded := encodings[encoding]([]byte(secret), r)
		for n := range len(encoded) {
			for _, after := range []string{"", "\n", "\r\n", " ", "%", `\`} {
				pieces := []string{"a line\nguess: ", encoded[:n] + after, "and", " on\n"}
				if got, want := releases(with, pieces), releases(without, pieces); !slices.Equal(got, want) && !strings.Contains(strings.Join(got, ""), "[redacted: t]") {
					t.Fatalf("of %s %q gives %q, and %q without the value", encoding, pieces, got, want)
				}
			}
		}
	}
}

// TestNothingTellsOfForeignValuesThatDontOccur compares streams that differ in their foreign values alone.
func TestNothingTellsOfForeignValuesThatDontOccur(t *testing.T) {
	t.Parallel()
	rounds, compared := 1200, 0
	if testing.Short() {
		rounds = 300
	}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 17))
		own := longValues(r, "own", r.IntN(3))
		a, b := longValues(r, "a", 1+r.IntN(4)), longValues(r, "b", 1+r.IntN(4))
		for i := range a {
			a[i].Foreign = true
		}
		for i := range b {
			b[i].Foreign = true
		}
		text := partsOf(r, own, slices.Concat(a, b))
		if _, found := occurrences(slices.Concat(a, b), text); len(found) > 0 {
			continue
		}
		compared++
		pieces := piecesOf(r, text)
		first := releases(mustNew(t, slices.Concat(own, a)), pieces)
		second := releases(mustNew(t, slices.Concat(b, own)), pieces)
		if !slices.Equal(first, second) {
			t.Fatalf("own %s\nforeign %s\nor %s\npieces %q\ngive %q\nand  %q", show(own), show(a), show(b), pieces, first, second)
		}
	}
	if compared < rounds/2 {
		t.Errorf("only %d of %d texts have no foreign value", compared, rounds)
	}
}

// longValues are of many letters, some have several lines, and some are too short to be matched.
func longValues(r *rand.Rand, name string, n int) []Value {
	letters := []byte("abcXYZ0123456789+/=_- %\\\"\xe9\n")
	var values []Value
	for range n {
		v := make([]byte, 5+r.IntN(50))
		for k := range v {
			v[k] = letters[r.IntN(len(letters)-r.IntN(2))]
		}
		values = append(values, Value{Name: name, Value: v})
	}
	return values
}

// partsOf is a text of own values, and of beginnings and other parts of all values, encoded.
func partsOf(r *rand.Rand, own, foreign []Value) []byte {
	names, all := slices.Sorted(maps.Keys(encodings)), slices.Concat(own, foreign)
	encoded := func(values []Value) []byte {
		return []byte(encodings[names[r.IntN(len(names))]](values[r.IntN(len(values))].Value, r))
	}
	var text []byte
	for range 1 + r.IntN(10) {
		switch kind, part := r.IntN(5), encoded(all); {
		case kind == 0 && len(own) > 0:
			text = append(text, encoded(own)...)
		case kind < 3:
			text = append(text, part[:r.IntN(1+len(part)*3/4)]...)
		case kind == 3:
			text = append(text, part[1+r.IntN(len(part)-1):]...)
		default:
			text = append(text, pieces[r.IntN(len(pieces))]...)
		}
	}
	return text
}

func piecesOf(r *rand.Rand, text []byte) (list []string) {
	for len(text) > 0 {
		n := 1 + r.IntN(min(len(text), 40))
		list = append(list, string(text[:n]))
		text = text[n:]
	}
	return list
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
		"base64 in pieces of a line":            {[]string{"czNjcjN0L1", "Qwa2VuK3g9PQ==\n"}, []string{"", "[redacted: t]==\n", ""}},
		"base64 of two lines in one piece":      {[]string{"czNjcjN0L1\nQwa2VuK3g9PQ==\n"}, []string{"[redacted: t]==\n", ""}},
		"the rest of base64 that goes on":       {[]string{"czNjcjN0L1\n", "Qwa2VuK3g9PQ==\n"}, []string{"czNjcjN0L1\n", "[redacted: t]==\n", ""}},
		"own and foreign values in one line":    {[]string{"own-value-1 " + secret, "\n"}, []string{"", "[redacted: own] [redacted: t]\n", ""}},
		"an empty piece changes nothing":        {[]string{"a", "", "b"}, []string{"", "", "", "ab"}},
		"an own value is found over pieces too": {[]string{"own-", "value-1\n"}, []string{"", "[redacted: own]\n", ""}},
	}
	for name, test := range tests {
		if got := releases(m, test.pieces); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q gives %q, not %q", name, test.pieces, got, test.want)
		}
	}
}

func TestAnOwnValueOfSeveralLinesWaitsWhereForeignValuesDont(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{{Name: "own", Value: []byte("first own line\nsecond")}, foreign("t", "first one here\nsecond")})
	got := releases(m, []string{"first own line\n", "second\n", "first one here\n", "2nd\n"})
	if want := []string{"", "[redacted: own]\n", "first one here\n", "2nd\n", ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, not %q", got, want)
	}
}

const foreignKey = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n  indented line of key \nshort\n-----END PRIVATE KEY-----\n"

func TestLinesOfAForeignValueAreFoundByThemselves(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{foreign("key", foreignKey)})
	for text, want := range map[string]string{
		foreignKey: "[redacted: key]\n",
		strings.ReplaceAll(foreignKey, "\n", "\r\n"):                      "[redacted: key]\r\n",
		"> MIIEvQIBADANBgkqhkiG\n":                                        "> [redacted: key]\n",
		"| indented line of key |":                                        "| [redacted: key] |",
		"-----BEGIN PRIVATE KEY-----\nother":                              "-----BEGIN PRIVATE KEY-----\nother",
		"a short line":                                                    "a short line",
		base64.StdEncoding.EncodeToString([]byte("MIIEvQIBADANBgkqhkiG")): "[redacted: key]=",
	} {
		if got := textOf(m, text); got != want {
			t.Errorf("%q became %q, not %q", text, got, want)
		}
	}
	own := mustNew(t, []Value{{Name: "key", Value: []byte(foreignKey)}})
	if got := textOf(own, "MIIEvQIBADANBgkqhkiG"); got != "MIIEvQIBADANBgkqhkiG" {
		t.Errorf("a line of a value that isn't foreign became %q", got)
	}
}

func TestAForeignValueThatComesLineByLineIsReplacedFromItsFirstLongLine(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{foreign("key", foreignKey)})
	got := strings.Join(releases(m, slices.Collect(strings.Lines("x\n"+foreignKey+"y\n"))), "")
	want := "x\n-----BEGIN PRIVATE KEY-----\n[redacted: key]\n  [redacted: key] \nshort\n[redacted: key]\ny\n"
	if got != want {
		t.Errorf("got %q, not %q", got, want)
	}
}

func TestALongLineIsHeldBackInPart(t *testing.T) {
	t.Parallel()
	value := strings.Repeat("value ", MaxLength/6) + "end"
	m := mustNew(t, []Value{foreign("long", value), foreign("t", secret)})
	s := m.NewStream()
	var out []byte
	for range 300 {
		out = s.Append(out, bytes.Repeat([]byte("."), 1000))
	}
	if s.Pending() != maxLine || len(out) != 300_000-maxLine {
		t.Errorf("%d bytes are held back, and %d written", s.Pending(), len(out))
	}
	for text := []byte(value + secret); len(text) > 0; text = text[min(1000, len(text)):] {
		out = s.Append(out, text[:min(1000, len(text))])
	}
	out = s.Flush(out)
	if want := strings.Repeat(".", 300_000) + "[redacted: long][redacted: t]"; string(out) != want {
		t.Errorf("%d bytes are written: %.100q", len(out), out[min(len(out), 299_990):])
	}
}

func TestAForeignValueIsFoundInALongText(t *testing.T) {
	t.Parallel()
	key := "a line of a key\n" + strings.Repeat("of many lines\n", 4000) + "and its end"
	m := mustNew(t, []Value{foreign("key", key)})
	text := strings.Repeat("text\n", 10_000)
	if got := textOf(m, text+key+text); got != text+"[redacted: key]"+text {
		t.Errorf("%d bytes are left of %d", len(got), 2*len(text)+len(key))
	}
}
