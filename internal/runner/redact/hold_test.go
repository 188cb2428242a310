package redact

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// logLine is like what servers and builds print.
func logLine(r *rand.Rand) string {
	words := []string{"listening", "request", "ready", "worker", "cache", "GET", "done", "INFO", "retry", "token", "module", "id", "OK", "build"}
	word := func() string { return words[r.IntN(len(words))] }
	switch r.IntN(8) {
	case 0:
		return fmt.Sprintf("Listening on http://127.0.0.1:%d\n", 1024+r.IntN(60000))
	case 1:
		return fmt.Sprintf("%s %s %c%c\n", word(), word(), 'a'+rune(r.IntN(26)), 'a'+rune(r.IntN(26)))
	case 2:
		return fmt.Sprintf("2026-01-02T03:04:%02dZ %s: %s took %d ms\r\n", r.IntN(60), word(), word(), r.IntN(1000))
	case 3:
		return fmt.Sprintf("commit %040x\n", randomBytes(r, 20))
	case 4:
		return fmt.Sprintf("%s=%s\n", word(), randomBase64(r, 3+r.IntN(20)))
	case 5:
		return fmt.Sprintf("/srv/%s/%s/%d\n", word(), word(), r.IntN(1000))
	case 6:
		return fmt.Sprintf("%s: 100%% of %d\n", word(), r.IntN(1000))
	default:
		return fmt.Sprintf("%s %s %s\n", word(), word(), word())
	}
}

func TestALineOfALogIsShownWhenItEnds(t *testing.T) {
	t.Parallel()
	const lines, handful = 10_000, 5
	m := mustNew(t, benchValues())
	r := rand.New(rand.NewPCG(11, 11))
	s := m.NewStream()
	held := 0
	for range lines {
		line := logLine(r)
		out := s.Append(nil, []byte(line))
		if n := s.pending(); n > 0 {
			held++
			t.Logf("%d bytes of %q are held", n, line)
		}
		// Half of the lines follow others.
		if r.IntN(2) == 0 || s.pending() > 0 {
			out = s.Flush(out)
		}
		if string(out) != line {
			t.Fatalf("%q became %q", line, out)
		}
	}
	if held > handful {
		t.Errorf("%d of %d lines are held at their end", held, lines)
	}
}

func TestAValueThatBeginsWithALineEndHoldsNoLine(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{{Name: "t", Value: []byte("\r\nsecond line")}})
	got := releases(m, []string{"ready\n", "second", " line\n"})
	if want := []string{"ready\n", "", "[redacted: t]\n", ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, not %q", got, want)
	}
}

func TestOnlyThePossibleBeginningOfAFormIsHeldBack(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{{Name: "t", Value: []byte(secret)}})
	for text, want := range map[string]int{
		"": 0, "$ ": 0, "password: ": 0, "it costs 100": 0, "it is s": 1, "it is s3cr": 4, "it is " + secret[:15]: 15, "it is " + secret: 0, "100%": 0, "100%7": 2,
		"x 73336372": 8, "x 7333637": 7, "x 7": 0, "x 73": 2, "x c": 0, "x cz": 2, "user s3cr3t ": 0, "line\n": 0,
	} {
		s := m.NewStream()
		out := s.Append(nil, []byte(text))
		if got := s.pending(); got != want || text[:len(text)-want] != string(out) && !strings.Contains(text, secret) {
			t.Errorf("of %q %d bytes are held back, not %d, and %q is written", text, got, want, out)
		}
	}
}

func (s *Stream) pending() int { return int(s.base + int64(len(s.text)) - s.written) }

// One character of an encoded form stays where a write ends after it; the rest doesn't.
func TestAFormIsFoundAfterItsEdgeWasShown(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{{Name: "t", Value: []byte(secret)}})
	encoded := base64.RawStdEncoding.EncodeToString([]byte(secret + "aa"))
	for name, test := range map[string]struct{ pieces, want []string }{
		"one character":         {[]string{encoded[:1], encoded[1:]}, []string{encoded[:1], "[redacted: t]" + encoded[21:], ""}},
		"two":                   {[]string{encoded[:2], encoded[2:]}, []string{"", "[redacted: t]" + encoded[21:], ""}},
		"nothing follows":       {[]string{encoded[:1] + "\n", "text\n"}, []string{encoded[:1] + "\n", "text\n", ""}},
		"a value that is plain": {[]string{secret[:1], secret[1:]}, []string{"", "[redacted: t]", ""}},
	} {
		if got := releases(m, test.pieces); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q gives %q, not %q", name, test.pieces, got, test.want)
		}
	}
}

func TestAFlushEndsATextAndBeginsAnother(t *testing.T) {
	t.Parallel()
	stream := mustNew(t, []Value{{Name: "t", Value: []byte(secret)}}).NewStream()
	var out []byte
	for _, piece := range []string{"a " + secret[:10], secret[10:] + "%", "b" + secret} {
		out = stream.Flush(stream.Append(out, []byte(piece)))
		if stream.pending() != 0 {
			t.Fatal(stream.pending())
		}
	}
	if want := "a " + secret + "%b[redacted: t]"; string(out) != want {
		t.Errorf("got %q, not %q", out, want)
	}
}
