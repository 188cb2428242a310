package redact

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// escapesOf are ways to write a character: in each list those of one notation.
var escapesOf = [][]string{
	{"%%%02x", "%%%02X"},
	{`\u%04x`, `\x%02x`},
	{`\\u%04x`, `\u005cu%04x`, `\\\u0075%04x`, `\\x%02x`, `\u%04x`, `\x5c\x78%02X`},
}

// lineEndsOf are ways to write a line end, for the same notations.
var lineEndsOf = [][]string{
	{"\n", "\r\n", "%0a", "%0D%0A", "\r%0A", "%0d\n"},
	{"\n", "\r\n", `\n`, `\r\n`, `\u000a`, "\\r\n", "\r\\n"},
	{`\\n`, `\n`, "\n"},
}

// escaped writes some characters of a text as escapes, and line ends between some.
func escaped(s string, r *rand.Rand) string {
	kind := r.IntN(len(escapesOf))
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	// Escapes are rare or often, and either anywhere or where an occurrence begins.
	often, first := []int{2, 6, 20}[r.IntN(3)], []int{3, 10, len(s)}[r.IntN(3)]
	hasLineEnds := r.IntN(2) == 0
	var b strings.Builder
	for i, c := range []byte(s) {
		if hasLineEnds && i > 0 && i < first && r.IntN(often) == 0 {
			b.WriteString(pick(lineEndsOf[kind]))
		}
		if i < first && r.IntN(often) == 0 {
			fmt.Fprintf(&b, pick(escapesOf[kind]), c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// TestEscapesMayBeAnywhereInAnOccurrence has values that are written with few or many escapes and line ends, above all where
// they begin: that is where the filter looks.
func TestEscapesMayBeAnywhereInAnOccurrence(t *testing.T) {
	t.Parallel()
	rounds := 1200
	if testing.Short() {
		rounds = 300
	}
	alphabets := []string{"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", "ab/+-_\"%\\ 41n", "ab \n\xff\u00e9"}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 23))
		letters := alphabets[r.IntN(len(alphabets))]
		value := make([]byte, 8+r.IntN(25))
		for i := range value {
			value[i] = letters[r.IntN(len(letters))]
		}
		values := []Value{{Name: "a", Value: value, Foreign: r.IntN(3) == 0}, {Name: "b", Value: []byte("another value+of/text")}}
		var text strings.Builder
		for range 1 + r.IntN(3) {
			digits := []string{
				string(value), hex.EncodeToString(value), string(values[1].Value),
				base64.StdEncoding.EncodeToString(around(value, r)), base64.URLEncoding.EncodeToString(around(value, r)),
			}[r.IntN(5)]
			text.WriteString(strings.Repeat("some text. ", r.IntN(6)))
			text.WriteString(pieces[r.IntN(len(pieces))] + escaped(digits, r) + pieces[r.IntN(len(pieces))])
		}
		check(t, values, []byte(text.String()), seed)
	}
}
