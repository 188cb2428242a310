package redact

import (
	"bytes"
	"testing"
)

func TestStreamsDontAllocateWhenTheyHaveRunAWhile(t *testing.T) {
	text := append(bytes.Repeat([]byte("a line of text, 100% \\n of it\n"), 500), "YWJj\n"+secret+"\n"...)
	s := mustNew(t, []Value{{Name: "t", Value: []byte(secret)}, {Name: "w", Value: []byte("with a space")}}).NewStream()
	var out []byte
	write := func() {
		for from := 0; from < len(text); from += 1000 {
			out = s.Append(out[:0], text[from:min(from+1000, len(text))])
		}
	}
	for range 10 {
		write()
	}
	if n := testing.AllocsPerRun(20, write); n != 0 {
		t.Errorf("%v allocations for a text", n)
	}
}

func TestMemoryIsBoundedWhateverTheText(t *testing.T) {
	t.Parallel()
	value := append(bytes.Repeat([]byte("a"), 1000), 'b')
	m := mustNew(t, []Value{{Name: "t", Value: value}})
	for _, piece := range []string{"a", "%61", `\\u0061`, "61", "YWFh", "Y\nW\r\nF\nh\n", "%", `\`, "36", "+"} {
		s := m.NewStream()
		var out []byte
		text := bytes.Repeat([]byte(piece), 1000)
		for range 500 {
			out = s.Append(out[:0], text)
		}
		if n := cap(s.text); n > 1<<18 {
			t.Errorf("a stream of %q has %d bytes", piece, n)
		}
	}
}
