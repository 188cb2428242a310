package plugin

import (
	"bytes"
	"strings"
	"sync"
	"testing"
)

func TestPrefixedLines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pieces []string
		want   string
	}{
		"nothing":                  {nil, ""},
		"a line in pieces":         {[]string{"a", "b", "c\n"}, "[x] abc\n"},
		"several lines at once":    {[]string{"a\nb\nc"}, "[x] a\n[x] b\n[x] c\n"},
		"empty lines":              {[]string{"\n", "\n"}, "[x] \n[x] \n"},
		"a line that is very long": {[]string{strings.Repeat("y", maxPrefixedLine), "z\n"}, "[x] " + strings.Repeat("y", maxPrefixedLine) + "\n[x] z\n"},
	} {
		var out bytes.Buffer
		w := &prefixWriter{mu: &sync.Mutex{}, out: &out, prefix: "[x] "}
		for _, piece := range c.pieces {
			if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
				t.Errorf("%s: %d, %v", name, n, err)
			}
		}
		if err := w.end(); err != nil || out.String() != c.want {
			t.Errorf("%s: %v, %.80q, want %.80q", name, err, out.String(), c.want)
		}
	}
	if _, err := (&prefixWriter{mu: &sync.Mutex{}, out: brokenPipe{}}).Write([]byte("x\n")); err == nil {
		t.Error("a failed write is lost")
	}
}
