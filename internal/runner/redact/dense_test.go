package redact

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// writtenInJSON writes each character in one of the ways that a string of JSON has for it.
func writtenInJSON(s string, r *rand.Rand, often int) string {
	var b strings.Builder
	for len(s) > 0 {
		c, size := utf8.DecodeRuneInString(s)
		short := strings.IndexByte("\n\t\r\b\f\"\\/'\a\v", s[0])
		switch {
		case c == utf8.RuneError:
			fmt.Fprintf(&b, []string{`\udc%02x`, `\x%02x`}[r.IntN(2)], s[0])
		case r.IntN(often) > 0 && c != '\\':
			b.WriteString(s[:size])
		case c > 0xFFFF:
			fmt.Fprintf(&b, `\u%04x\u%04X`, 0xD800+(c-0x10000)>>10, 0xDC00+(c-0x10000)&0x3FF)
		case short >= 0 && r.IntN(3) > 0:
			b.WriteString(`\` + `ntrbf"\/'av`[short:short+1])
		case c < 0x80 && r.IntN(2) == 0:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			fmt.Fprintf(&b, `\u%04x`, c)
		}
		s = s[size:]
	}
	return b.String()
}

// written writes a text with many escapes, in one or two ways.
func written(s string, r *rand.Rand) string {
	often := 1 + r.IntN(4)
	switch r.IntN(4) {
	case 0:
		return writtenInJSON(writtenInJSON(s, r, often), r, 1+r.IntN(4))
	case 1:
		var b strings.Builder
		for _, c := range []byte(s) {
			if c == '%' || r.IntN(often) == 0 {
				fmt.Fprintf(&b, "%%%02X", c)
			} else {
				b.WriteByte(c)
			}
		}
		return b.String()
	default:
		return writtenInJSON(s, r, often)
	}
}

// randomRunes is a text of at least so many bytes.
func randomRunes(r *rand.Rand, letters []string, size int) string {
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(letters[r.IntN(len(letters))])
	}
	return b.String()
}

// TestAnOccurrenceMayBeAmongEscapesOfAnyWidth has texts that are full of escapes, most of which a window can have.
func TestAnOccurrenceMayBeAmongEscapesOfAnyWidth(t *testing.T) {
	t.Parallel()
	rounds := 2000
	if testing.Short() {
		rounds = 400
	}
	alphabets := []string{"пароль", "é€😀a", `"{:<&`, "a\"\\/\n", "\xff\xfe\x80é", "ab1/+-", "key=\t\n"}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 29))
		letters := strings.Split(alphabets[r.IntN(len(alphabets))], "")
		value := randomRunes(r, letters, 8+r.IntN(16))
		values := []Value{{Name: "a", Value: []byte(value), Foreign: r.IntN(3) == 0}, {Name: "b", Value: []byte("a second one")}}
		around := append(strings.Split("xyz\t<ш", ""), letters...)
		var text strings.Builder
		for range 1 + r.IntN(3) {
			text.WriteString(written(randomRunes(r, around, r.IntN(30)), r))
			if cut := r.IntN(len(value)); r.IntN(3) == 0 {
				text.WriteString(written(value[:cut], r))
			}
			text.WriteString(written(randomRunes(r, around, r.IntN(4))+value, r))
		}
		check(t, values, []byte(text.String()), seed)
	}
}

func TestAnOccurrenceMayBeginWithinARune(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`\u043fpassword`, `ab\u20acpassword`, `\u0436\ud83d\ude00password`} {
		decoded := oracleDecoded(text)
		for from := range len(decoded) - len("password") {
			check(t, []Value{{Name: "a", Value: decoded[from:]}}, []byte(text), uint64(from))
		}
	}
}

// oracleDecoded returns what a string of JSON stands for.
func oracleDecoded(text string) []byte {
	return mapSource([]byte(text)).replaceAll(jsonPattern, oracleJSON).text
}

// TestAnOccurrenceMayFollowTheSameCharacters has texts that look the same at several samples of the filter.
func TestAnOccurrenceMayFollowTheSameCharacters(t *testing.T) {
	t.Parallel()
	for _, repeated := range []string{"-", "a", "0", "=", "%", `\`, "abcde", "ab", `\"`, "%41"} {
		rotated := repeated[1:] + repeated[:1]
		for n := range 30 {
			for _, value := range []string{
				strings.Repeat(repeated, 5) + "BEGIN", strings.Repeat(repeated, 20), strings.Repeat(repeated, 20) + "end",
				repeated + "-secret", "secret" + strings.Repeat(repeated, 9), strings.Repeat(rotated, 8) + "end",
			} {
				if len(value) < MinLength {
					continue
				}
				values := []Value{{Name: "a", Value: []byte(value)}}
				before := strings.Repeat("x", n%7) + strings.Repeat(repeated, n/7*n/7)
				check(t, values, []byte(before+repeated[:1]+value+strings.Repeat(repeated, n)), uint64(n))
			}
		}
	}
}

// TestDigitsMayFollowTheSameDigits has digits that look the same at several samples, at other alignments.
func TestDigitsMayFollowTheSameDigits(t *testing.T) {
	t.Parallel()
	same := strings.Repeat("abcde", 4)
	fromHex, _ := hex.DecodeString(same + "f0")
	fromBase64, _ := base64.StdEncoding.DecodeString(same + "AAAA")
	for n := range 30 {
		before := strings.Repeat("x", n%6) + "," + strings.Repeat("abcde", n/3)
		check(t, []Value{{Name: "a", Value: fromHex}}, []byte(before+same+"f0,"), uint64(n))
		check(t, []Value{{Name: "a", Value: fromBase64}}, []byte(before+same+"AAAA,"), uint64(n))
	}
}
