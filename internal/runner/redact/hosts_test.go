package redact

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const token = "ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"

func TestAValueIsFoundInAnyCaseWhereATextNamesHosts(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{
		{Name: "TOKEN", Value: []byte(token + "\n")}, {Name: "PASSWORD", Value: []byte("password"), Foreign: true},
		{Name: "QUOTED", Value: []byte(`Say "Hello" \o/`)}, {Name: "SHORT", Value: []byte("abcdefg")}, {Name: "LONGER", Value: []byte("thePasswords")},
		{Name: "LONG", Value: []byte(strings.Repeat("Long", 100))},
	})
	once := strings.ToLower(fmt.Sprintf("%q", `Say "Hello" \o/`))
	for name, c := range map[string]struct{ text, want string }{
		"as it stands":              {token, "[redacted: TOKEN]"},
		"in lower case":             {strings.ToLower(token) + ".example.com", "[redacted: TOKEN].example.com"},
		"in upper case":             {"a." + strings.ToUpper(token), "a.[redacted: TOKEN]"},
		"in hexadecimal digits":     {fmt.Sprintf("%X", strings.ToLower(token)[:4]) + fmt.Sprintf("%X.", token), "6768705F[redacted: TOKEN]."},
		"more than once":            {"Looking up PassWord and password failed", "Looking up [redacted: PASSWORD] and [redacted: PASSWORD] failed"},
		"quoted":                    {once[1:len(once)-1] + " x", "[redacted: QUOTED] x"},
		"quoted twice":              {fmt.Sprintf("%q", once[1:len(once)-1]), `"[redacted: QUOTED]"`},
		"the longest names it":      {"XTHEPASSWORDSX", "X[redacted: LONGER]X"},
		"a part isn't one":          {strings.ToLower(token[1:]), strings.ToLower(token[1:])},
		"a short one isn't matched": {"ABCDEFG", "ABCDEFG"},
		"the rest keeps its case":   {"Add {host: PASSWORD.Example.com}: É", "Add {host: [redacted: PASSWORD].Example.com}: É"},
		"what looks like a mark":    {"[redacted: " + strings.ToLower(token) + "]", "[redacted: [redacted: TOKEN]]"},
		"one that no name can have": {strings.Repeat("Long", 100) + " " + strings.Repeat("long", 100), "[redacted: LONG] " + strings.Repeat("long", 100)},
		"nothing":                   {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, counts := m.HostText(c.text)
			if got != c.want {
				t.Errorf("got %q", got)
			}
			total := int64(0)
			for _, one := range counts {
				total += one.Count
			}
			if want := strings.Count(c.want, "[redacted: ") - strings.Count(c.text, "[redacted: "); total != int64(want) {
				t.Errorf("%d are counted, not %d", total, want)
			}
		})
	}
}

// Characters that have bits of something else, too, can stay.
func TestBase64IsFoundInAnyCaseAtAnyOffset(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		value := make([]byte, MinLength+r.IntN(40))
		for i := range value {
			value[i] = byte(r.Uint32())
		}
		value[0], value[len(value)-1] = 'a', 'z'
		before, after := make([]byte, r.IntN(6)), make([]byte, r.IntN(6))
		encoding := []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding}[r.IntN(2)]
		text := strings.ToLower(encoding.EncodeToString(slices.Concat(before, value, after)))
		got, counts := mustNew(t, []Value{{Name: "N", Value: value}}).HostText(text)
		first, end := (len(before)*8+5)/6, (len(before)+len(value))*8/6
		want := text[:first] + "[redacted: N]" + text[end:]
		if alone := text[:first] + "[redacted: N]" + text[min(end+1, len(text)):]; got != want && got != alone || len(counts) != 1 {
			t.Fatalf("%d bytes before, %d, %d behind: %q is %q, not %q", len(before), len(value), len(after), text, got, want)
		}
	}
}

// Each of them would take minutes if the time grew with the square of the length.
func TestLongTextsThatNameHosts(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{{Name: "REPEATED", Value: []byte("aaaaaaaaaaaa")}, {Name: "TOKEN", Value: []byte(token)}})
	for name, c := range map[string]struct {
		text  string
		count int64
	}{
		"a value over itself": {strings.Repeat("A", 1<<17), 1},
		"many values":         {strings.Repeat(strings.ToUpper(token)+" ", 1<<12), 1 << 12},
	} {
		if out, counts := m.HostText(c.text); len(counts) != 1 || counts[0].Count != c.count || strings.Contains(strings.ToLower(out), strings.ToLower(token)) {
			t.Errorf("%s: %v", name, counts)
		}
	}
}
