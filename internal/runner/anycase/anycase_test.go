package anycase

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/runner/redact"
)

const token = "ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"

func values() *Values {
	return New([]redact.Value{
		{Name: "TOKEN", Value: []byte(token + "\n")}, {Name: "PASSWORD", Value: []byte("password"), Foreign: true},
		{Name: "QUOTED", Value: []byte(`Say "Hello" \o/`)}, {Name: "SHORT", Value: []byte("abcdefg")}, {Name: "LONGER", Value: []byte("thePasswords")},
	})
}

func TestAValueIsFoundInAnyCase(t *testing.T) {
	t.Parallel()
	once := strings.ToLower(inQuotes(`Say "Hello" \o/`, func(s string) string { return fmt.Sprintf("%q", s) }))
	for name, c := range map[string]struct{ text, want string }{
		"as it stands":              {token, "[redacted: TOKEN]"},
		"in lower case":             {strings.ToLower(token) + ".example.com", "[redacted: TOKEN].example.com"},
		"in upper case":             {"a." + strings.ToUpper(token), "a.[redacted: TOKEN]"},
		"more than once":            {"Looking up PassWord and password failed", "Looking up [redacted: PASSWORD] and [redacted: PASSWORD] failed"},
		"quoted":                    {once + " x", "[redacted: QUOTED] x"},
		"quoted twice":              {fmt.Sprintf("%q", once), `"[redacted: QUOTED]"`},
		"the longest names it":      {"XTHEPASSWORDSX", "X[redacted: LONGER]X"},
		"a part isn't one":          {strings.ToLower(token[1:]), strings.ToLower(token[1:])},
		"a short one isn't matched": {"ABCDEFG", "ABCDEFG"},
		"the rest keeps its case":   {"Add {host: PASSWORD.Example.com}: É", "Add {host: [redacted: PASSWORD].Example.com}: É"},
		"a mark stays":              {"[redacted: PASSWORD] [redacted: PASSWORD", "[redacted: PASSWORD] [redacted: [redacted: PASSWORD]"},
		"what looks like a mark":    {"[redacted: " + strings.ToLower(token) + "]", "[redacted: [redacted: TOKEN]]"},
		"nothing":                   {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, counts := values().Text(c.text)
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

// What has bits of the value is replaced, and what has none stays.
func TestBase64IsFoundInAnyCaseAtAnyOffset(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		value := make([]byte, redact.MinLength+r.IntN(40))
		for i := range value {
			value[i] = byte(r.Uint32())
		}
		value[0], value[len(value)-1] = 'a', 'z'
		before, after := make([]byte, r.IntN(6)), make([]byte, r.IntN(6))
		encoding := []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding}[r.IntN(2)]
		text := strings.ToLower(encoding.EncodeToString(slices.Concat(before, value, after)))
		got, counts := New([]redact.Value{{Name: "N", Value: value}}).Text(text)
		first, end := len(before)*8/6, ((len(before)+len(value))*8+5)/6
		if want := text[:first] + "[redacted: N]" + text[end:]; got != want || len(counts) != 1 {
			t.Fatalf("%d bytes before, %d, %d behind: %q is %q, not %q", len(before), len(value), len(after), text, got, want)
		}
	}
}

func TestNoValueIsPrinted(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, values()); got != "anycase.Values(4 values)" {
			t.Errorf("%s: %q", verb, got)
		}
	}
}

// Each of them would take minutes if the time grew with the square of the length.
func TestLongTexts(t *testing.T) {
	t.Parallel()
	v := New([]redact.Value{{Name: "REPEATED", Value: []byte("aaaaaaaaaaaa")}, {Name: "TOKEN", Value: []byte(token)}})
	for name, c := range map[string]struct {
		text  string
		count int64
	}{
		"a value over itself": {strings.Repeat("A", 1<<17), 1},
		"many values":         {strings.Repeat(strings.ToUpper(token)+" ", 1<<12), 1 << 12},
		"many marks":          {strings.Repeat("[redacted: TOKEN]"+token, 1<<12), 1 << 12},
		"no marks":            {strings.Repeat("[redacted: ", 1<<14) + token, 1},
	} {
		if out, counts := v.Text(c.text); len(counts) != 1 || counts[0].Count != c.count || strings.Contains(strings.ToLower(out), strings.ToLower(token)) {
			t.Errorf("%s: %v", name, counts)
		}
	}
}
