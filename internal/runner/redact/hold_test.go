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
		if n := s.Pending(); n > 0 {
			held++
			t.Logf("%d bytes of %q are held", n, line)
		}
		// Half of the lines follow others.
		if r.IntN(2) == 0 || s.Pending() > 0 {
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

func TestAnOccurrenceIsFoundAfterItsEdgeWasShown(t *testing.T) {
	t.Parallel()
	m := mustNew(t, []Value{{Name: "t", Value: []byte(secret)}})
	encoded := base64.StdEncoding.EncodeToString([]byte(secret))
	for name, test := range map[string]struct{ pieces, want []string }{
		"two characters":               {[]string{encoded[:2], encoded[2:]}, []string{encoded[:2], "[redacted: t]", "=="}},
		"three at a line end":          {[]string{encoded[:3] + "\n", encoded[3:] + "\n"}, []string{encoded[:3] + "\n", "[redacted: t]==\n", ""}},
		"one in each piece":            {[]string{encoded[:1], encoded[1:2], encoded[2:4], encoded[4:]}, []string{encoded[:1], encoded[1:2], "", "[redacted: t]", "=="}},
		"an edge that nothing follows": {[]string{encoded[:3] + "\n", "text\n"}, []string{encoded[:3] + "\n", "text\n", ""}},
	} {
		if got := releases(m, test.pieces); strings.Join(got, "") != strings.Join(test.want, "") || got[0] != test.want[0] {
			t.Errorf("%s: %q gives %q, not %q", name, test.pieces, got, test.want)
		}
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
