package redact

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestTheLongestValueIsFoundInEveryForm(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 9))
	value := []byte(wrapAt(randomBase64(r, MaxLength), 64))[:MaxLength-1]
	for _, isForeign := range []bool{false, true} {
		m := mustNew(t, []Value{{Name: "short", Value: value[100:120], Foreign: isForeign}, {Name: "t", Value: value, Foreign: isForeign}})
		for i, f := range formsOf(value) {
			// A foreign form of several lines is found line by line.
			if f.size < len(value) || isForeign && bytes.ContainsAny(f.text, "\r\n") {
				continue
			}
			text := []byte("before \"" + string(f.text) + "\" after")
			for _, size := range []int{7, 1000, len(text)} {
				s := m.NewStream()
				var out []byte
				for from := 0; from < len(text); from += size {
					out = s.Append(out, text[from:min(from+size, len(text))])
				}
				out = s.Flush(out)
				if len(out) > 60 || bytes.Count(out, []byte("[redacted: t]")) != 1 {
					t.Errorf("form %d, foreign %t, in pieces of %d becomes %.200q", i, isForeign, size, out)
				}
			}
		}
	}
}
