package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

func mustNew(t testing.TB, values []Value) *Matcher {
	t.Helper()
	m, err := New(values)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// someValues have all that encoders treat in different ways.
var someValues = map[string]string{
	"token": secret, "words": "correct horse battery staple", "letters": "Tr0ub4dor&3<x>\"'\\/", "unicode": "pässwörd-😀-密码密码", "eight": "zZ9$%41+", "tilde": "a~b!c*d(e)f'g",
	"key": "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\n-----END KEY-----\n", "windows": "first line\r\nsecond line\r\n", "url": "https://user:pass@example.com/a?b=c&d=e#f", "tabs": "a\tb\x01c\x7fd\u2028e",
	"signs": "a,b;c$d@e:f!g", "document": "{\n  \"type\": \"account\",\n  \"key\": \"a\\nb\"\n}", "pasted": " \tk3y+of==words \n", "long": "a value whose base64 has several lines: " + strings.Repeat("0123456789-", 12),
}

// written are the ways in which programs print a value, by the encoders of the standard library.
func written(value string) map[string]string {
	plain := strings.TrimSpace(value)
	withHTML, _ := json.Marshal(plain)
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(plain)
	all := map[string]string{
		"plain": plain, "hex": hex.EncodeToString([]byte(plain)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(plain))),
		"query": url.QueryEscape(plain), "path": url.PathEscape(plain), "lower query": lowerPercent(url.QueryEscape(plain)), "user": strings.TrimPrefix(url.UserPassword("", plain).String(), ":"),
		"HTML form": strings.NewReplacer("%2A", "*", "~", "%7E").Replace(url.QueryEscape(plain)), "JSON": string(withHTML[1 : len(withHTML)-1]),
		"JSON without HTML": strings.Trim(strings.TrimSuffix(b.String(), "\n"), "\""), "PHP": strings.ReplaceAll(string(withHTML[1:len(withHTML)-1]), "/", "\\/"),
		"Gson": strings.NewReplacer("=", `\u003d`, "'", `\u0027`).Replace(string(withHTML[1 : len(withHTML)-1])), ".NET": inDotNET(plain), "single quotes": strings.ReplaceAll(strings.Trim(strings.TrimSuffix(b.String(), "\n"), "\""), `\"`, `"`), "URL": inURL(plain),
		"unix lines": strings.ReplaceAll(plain, "\r\n", "\n"), "windows lines": strings.ReplaceAll(strings.ReplaceAll(plain, "\r\n", "\n"), "\n", "\r\n"),
		"base64": base64.StdEncoding.EncodeToString([]byte(plain)), "base64 with its line end": base64.StdEncoding.EncodeToString([]byte(plain + "\n")), "base64url": base64.RawURLEncoding.EncodeToString([]byte(plain)),
		"wrapped base64": wrapAt(base64.StdEncoding.EncodeToString([]byte(plain)), 76), "wrapped base64 with its line end": wrapAt(base64.StdEncoding.EncodeToString([]byte(plain+"\n")), 64),
	}
	for _, before := range []string{"x", "xy", "xyz"} {
		all["base64 after "+before] = base64.StdEncoding.EncodeToString([]byte(before + plain + "after"))
		all["base64url after "+before] = base64.URLEncoding.EncodeToString([]byte(before + plain + "after"))
	}
	every := ""
	for _, c := range []byte(plain) {
		every += fmt.Sprintf("%%%02X", c)
	}
	all["every byte in percent"], all["every byte in lower percent"] = every, lowerPercent(every)
	return all
}

// inDotNET is what System.Text.Json writes in a string.
func inDotNET(value string) (text string) {
	short := map[rune]string{'\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}
	for _, r := range value {
		switch {
		case short[r] != "":
			text += short[r]
		case r >= ' ' && r < 0x7F && !strings.ContainsRune("<>&'\"+`", r):
			text += string(r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				text += fmt.Sprintf(`\u%04X`, unit)
			}
		}
	}
	return text
}

// inURL is what the URL of JavaScript has as its password.
func inURL(value string) (text string) {
	for _, c := range []byte(value) {
		if c > ' ' && c < 0x7F && !strings.ContainsRune("\"#<>?^`{}/:;=@[\\]|", rune(c)) {
			text += string(c)
		} else {
			text += fmt.Sprintf("%%%02X", c)
		}
	}
	return text
}

func lowerPercent(s string) string {
	b := []byte(s)
	for i := range b {
		if i > 0 && b[i-1] == '%' || i > 1 && b[i-2] == '%' {
			b[i] = bytes.ToLower(b[i : i+1])[0]
		}
	}
	return string(b)
}

// Over any split, nothing of eight bytes of what was written stays.
func TestEveryFormIsReplacedOverEverySplit(t *testing.T) {
	t.Parallel()
	for name, value := range someValues {
		m := mustNew(t, []Value{{Name: name, Value: []byte(value)}, {Name: "other", Value: []byte("another value")}})
		for way, text := range written(value) {
			whole := "before: " + text + ", after"
			want := textOf(m, whole)
			expectReplaced(t, name, way, text, want)
			// The first character of an encoded form may stay before the mark.
			edge := 1
			if way == "plain" {
				edge = 0
			}
			for cut := range len(whole) + 1 {
				got := strings.Join(releases(m, []string{whole[:cut], whole[cut:]}), "")
				if expectReplaced(t, name, way, text, got); len(got) > len(want)+edge {
					t.Fatalf("%s of %s, cut after %d bytes: %q, and whole %q", way, name, cut, got, want)
				}
			}
			if got := strings.Join(releases(m, strings.Split(whole, "")), ""); len(got) > len(want)+edge {
				t.Fatalf("%s of %s, byte by byte: %q, and whole %q", way, name, got, want)
			}
		}
	}
}

func expectReplaced(t *testing.T, name, way, text, got string) {
	t.Helper()
	mark := "[redacted: " + name + "]"
	left := strings.TrimSuffix(strings.TrimPrefix(strings.Replace(got, mark, "\x00", 1), "before: "), ", after")
	if !strings.Contains(got, mark) || !strings.HasPrefix(got, "before: ") || !strings.HasSuffix(got, ", after") {
		t.Fatalf("%s of %s: %q became %q", way, name, text, got)
	}
	for i := range len(text) - MinLength + 1 {
		// "after" in base64 is long enough.
		if part := text[i : i+MinLength]; strings.Contains(left, part) && !strings.Contains(way, "after") {
			t.Fatalf("%s of %s: %q is left in %q, of %q", way, name, part, got, text)
		}
	}
}

// White space before a value moves what stands in each line of wrapped base64.
func TestWrappedBase64OfAPastedValue(t *testing.T) {
	t.Parallel()
	value := "  " + strings.Repeat("k3y-", 30) + " \n"
	m := mustNew(t, []Value{{Name: "pasted", Value: []byte(value)}})
	for _, columns := range []int{64, 76} {
		text := wrapAt(base64.StdEncoding.EncodeToString([]byte(value)), columns)
		if got, _ := m.Text(text); !strings.Contains(got, "[redacted: pasted]") || len(got) > 30 {
			t.Errorf("in lines of %d: %q", columns, got)
		}
	}
}

// What Python prints, by Python.
func TestPythonsFormsAreReplaced(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	const program = `import base64, json, sys, urllib.parse as u
v = sys.stdin.buffer.read().decode()
for s in (v, json.dumps(v)[1:-1], json.dumps(v, ensure_ascii=False)[1:-1], u.quote(v), u.quote_plus(v), u.quote(v, safe=""), v.encode().hex(), base64.b64encode(v.encode()).decode(), base64.urlsafe_b64encode(v.encode()).decode(), base64.encodebytes(v.encode()).decode()):
    sys.stdout.write(s + "\\x00")`
	for name, value := range someValues {
		plain := strings.TrimSpace(value)
		cmd := exec.Command(python, "-I", "-S", "-c", strings.ReplaceAll(program, "\\\\x00", "\\x00"))
		cmd.Stdin = strings.NewReader(plain)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		m := mustNew(t, []Value{{Name: name, Value: []byte(value)}})
		for i, text := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			if got := textOf(m, text); !strings.Contains(got, "[redacted: "+name+"]") {
				t.Errorf("%s, %d: %q became %q", name, i, text, got)
			}
		}
	}
}

func TestLinesOfAValueCountByThemselves(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{{Name: "key", Value: []byte("-----BEGIN KEY-----\nQUJDREVGRw\nshort\n-----END KEY-----\n")}})
	for text, want := range map[string]string{
		"-----BEGIN KEY-----\nx": "-----BEGIN KEY-----\nx", "a QUJDREVGRw b": "a [redacted: key] b", "short": "short",
		"-----BEGIN KEY-----\nQUJDREVGRw\nshort\n-----END KEY-----\n": "[redacted: key]\n",
	} {
		if got := textOf(m, text); got != want {
			t.Errorf("%q became %q, not %q", text, got, want)
		}
	}
}

// What the page on secrets says that passes.
func TestOtherEncodingsPass(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{{Name: "t", Value: []byte(secret)}})
	for name, text := range map[string]string{
		"base64 twice": base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(secret)))), "reversed": "==x+nek0T/t3rc3s", "a part": secret[:15], "spaced": strings.Join(strings.Split(secret, ""), " "),
		"percent of some": "%733cr3t/T0ken+x==", "upper case": strings.ToUpper(secret),
	} {
		if got := textOf(m, text); got != text {
			t.Errorf("%s: %q became %q", name, text, got)
		}
	}
}

// naive replaces all that overlaps as the package says it does, by looking everywhere.
func naive(m *Matcher, text []byte) []byte {
	type found struct {
		start, end int
		n          *needle
	}
	var all []found
	for at := range text {
		var longest *needle
		for i := range m.needles {
			if n := &m.needles[i]; bytes.HasPrefix(text[at:], n.text) && (longest == nil || len(n.text) > len(longest.text)) {
				longest = n
			}
		}
		if longest != nil {
			all = append(all, found{at, at + len(longest.text), longest})
		}
	}
	var out []byte
	done := 0
	for i := 0; i < len(all); {
		one, j := all[i], i+1
		for ; j < len(all) && all[j].start < one.end; j++ {
			one.end = max(one.end, all[j].end)
			if all[j].n.size > one.n.size {
				one.n = all[j].n
			}
		}
		out = append(append(out, text[done:one.start]...), m.marks[one.n.value]...)
		done, i = one.end, j
	}
	return append(out, text[done:]...)
}

func TestAStreamAgreesWithLookingEverywhere(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 4))
		letters := "ab"
		if seed%3 == 0 {
			letters = "abc \n"
		}
		random := func(n int) []byte {
			b := make([]byte, n)
			for i := range b {
				b[i] = letters[r.IntN(len(letters))]
			}
			return b
		}
		var values []Value
		for i := range 1 + r.IntN(6) {
			v := random(6 + r.IntN(20))
			switch {
			case r.IntN(3) == 0:
				v = bytes.Repeat(random(1+r.IntN(3)), 12)
			case i > 0 && r.IntN(2) == 0:
				// It begins as another does, or is in the middle of it.
				other := values[r.IntN(i)].Value
				from := r.IntN(len(other)/2 + 1)
				v = append(slices.Clone(other[from:from+r.IntN(len(other)-from)]), random(1+r.IntN(20))...)
			}
			values = append(values, Value{Name: fmt.Sprint("v", i), Value: v})
		}
		m := mustNew(t, values)
		text := random(r.IntN(300))
		for range r.IntN(4) {
			v := values[r.IntN(len(values))].Value
			text = append(text, v[:len(v)-r.IntN(2)]...)
		}
		want := naive(m, text)
		var pieces []string
		for rest := string(text); rest != ""; {
			n := 1 + r.IntN(min(len(rest), 1+r.IntN(40)))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		whole, _ := m.Bytes(text)
		if got := strings.Join(releases(m, pieces), ""); got != string(want) || !bytes.Equal(whole, want) {
			t.Fatalf("seed %d: values %q, pieces %q: got %q and whole %q, want %q", seed, valuesOf(values), pieces, got, whole, want)
		}
	}
}

func valuesOf(values []Value) (all []string) {
	for _, v := range values {
		all = append(all, string(v.Value))
	}
	return all
}

// Work is counted and not timed: what nearly is a value, again and again, is compared, copied and searched for line ends a bounded number
// of times, however many values begin alike and however small the writes are.
func TestWorkIsLinearWhateverTheText(t *testing.T) {
	t.Parallel()
	const size = 4096
	a := bytes.Repeat([]byte("a"), size)
	nearly := append(bytes.Repeat([]byte("a"), size-1), 'b')
	early := append([]byte("b"), a...)
	ab := bytes.Repeat([]byte("ab"), size/2)
	runs := bytes.Repeat([]byte("aaaaaaaaaaaaaaaab"), size/17)
	link, token := []byte("postgres://service:"), []byte("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2V4YW1wbGUuY29tIn0")
	for name, one := range map[string]struct {
		values [][]byte
		text   []byte
	}{
		"all one byte": {[][]byte{a}, a}, "nearly": {[][]byte{nearly}, a}, "not quite all": {[][]byte{a}, append(a[:size-1:size-1], 'c')}, "begins otherwise": {[][]byte{early}, a},
		"two bytes": {[][]byte{ab}, append(ab[:size-2:size-2], "ac"...)}, "two of other phase": {[][]byte{ab}, append([]byte("b"), ab...)}, "runs": {[][]byte{runs}, append(runs[:size/2:size/2], 'c')},
		"hex": {[][]byte{nearly}, []byte(hex.EncodeToString(a))}, "base64": {[][]byte{nearly}, []byte(base64.StdEncoding.EncodeToString(a))}, "short and often": {[][]byte{[]byte("aaaaaaab")}, a},
		"begin alike": {endings(link), link}, "begin alike for long": {endings(token), append(token, "other"...)}, "begin alike with one byte": {endings(a[:200]), a}, "one begins the next": {beginnings(a[:320]), a},
	} {
		for _, isForeign := range []bool{false, true} {
			m := mustNew(t, valuesWith(one.values, isForeign))
			for _, piece := range []int{1, 1000, 1 << 20} {
				text := bytes.Repeat(one.text, 1<<17/len(one.text)+1)
				s := m.NewStream()
				for from := 0; from < len(text); from += piece {
					s.Append(nil, text[from:min(from+piece, len(text))])
				}
				s.Flush(nil)
				if limit := int64(10 * len(text)); s.work > limit {
					t.Errorf("%s, foreign %t, in pieces of %d: the work is %d for %d bytes", name, isForeign, piece, s.work, len(text))
				}
			}
		}
	}
}

// What is held back is neither moved nor searched again for each write, however small they are.
func TestWorkOfSmallWritesIsLinear(t *testing.T) {
	t.Parallel()
	const size = 1 << 17
	long := append(bytes.Repeat([]byte("a"), 60_000), 'b')
	for name, one := range map[string]struct {
		value Value
		text  []byte
	}{
		"a long beginning":    {Value{Name: "v", Value: long}, bytes.Repeat([]byte("a"), size)},
		"a line without end":  {foreign("v", secret), bytes.Repeat([]byte("x"), size)},
		"lines of some bytes": {foreign("v", secret), bytes.Repeat([]byte("a line\n"), size/7)},
	} {
		s := mustNew(t, []Value{one.value}).NewStream()
		var out []byte
		for i := range one.text {
			out = s.Append(out, one.text[i:i+1])
		}
		if out = s.Flush(out); !bytes.Equal(out, one.text) {
			t.Errorf("%s: %d bytes became %d others", name, len(one.text), len(out))
		}
		if limit := int64(20 * len(one.text)); s.work > limit {
			t.Errorf("%s: %d steps for %d bytes", name, s.work, len(one.text))
		}
	}
}

// endings are 320 values that begin alike.
func endings(beginning []byte) (all [][]byte) {
	for i := range MaxValues {
		all = append(all, fmt.Appendf(nil, "%s%c%d-secret", beginning, 'A'+i%26, i))
	}
	return all
}

// beginnings are all beginnings of a value.
func beginnings(value []byte) (all [][]byte) {
	for n := MinLength; n < len(value); n++ {
		all = append(all, value[:n])
	}
	return all
}

func valuesWith(texts [][]byte, isForeign bool) (all []Value) {
	for i, text := range texts {
		all = append(all, Value{Name: fmt.Sprint("v", i), Value: text, Foreign: isForeign})
	}
	return all
}

// FuzzRedact compares a stream with looking everywhere.
func FuzzRedact(f *testing.F) {
	f.Add([]byte(secret), []byte("x "+secret+" y"), 3)
	// Without its line end it is too short.
	f.Add([]byte("seven 7\r"), []byte("seven 7"), 99)
	f.Fuzz(func(t *testing.T, value, text []byte, cut int) {
		m, err := New([]Value{{Name: "v", Value: value}})
		if err != nil || len(text) > 4096 || len(value) > 1024 {
			return
		}
		if got, _ := m.Bytes(text); !bytes.Equal(got, naive(m, text)) {
			t.Errorf("%q of %q", got, text)
		}
		cut = max(0, min(cut, len(text)))
		plain := strings.Trim(string(value), "\r\n")
		got := strings.Join(releases(m, []string{string(text[:cut]), string(text[cut:])}), "")
		if len(plain) >= MinLength && strings.Contains(got, plain) && !strings.Contains("[redacted: v]", plain) {
			t.Errorf("%q is left in %q", value, got)
		}
	})
}
