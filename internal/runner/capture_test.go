package runner

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/output/kept"
)

func pipeWithoutCloexec(p *[2]int) error { return unix.Pipe(p[:]) }

func closeBoth(p [2]int) {
	unix.Close(p[0])
	unix.Close(p[1])
}

func FuzzCapture(f *testing.F) {
	f.Add([]byte("hello world"), 5, 3)
	f.Add([]byte("é😀\xff\xe2\x82"), 1, 1)
	f.Add([]byte(""), 0, 0)
	f.Add(bytes.Repeat([]byte("é"), 50), 7, 13)
	f.Fuzz(func(t *testing.T, data []byte, limit, piece int) {
		limit, piece = bounded(limit, 200), bounded(piece, 60)+1
		c := newCapture(kept.Limits{Memory: limit})
		for i := 0; i < len(data); i += piece {
			c.write(data[i:min(i+piece, len(data))])
		}
		c.finish(true)
		s := c.stream()
		head := min(limit-limit/2, len(data))
		tail := min(limit/2, len(data)-head)
		sum := sha256.Sum256(data)
		switch {
		case !bytes.Equal(s.Head, data[:head]), !bytes.Equal(s.Tail, data[len(data)-tail:]):
			t.Errorf("kept %q %q of %q", s.Head, s.Tail, data)
		case s.Bytes != int64(len(data)), s.SHA256 != hex.EncodeToString(sum[:]):
			t.Errorf("measured %d %s", s.Bytes, s.SHA256)
		case s.InvalidUTF8 == utf8.Valid(data):
			t.Errorf("valid: %v: %q", !s.InvalidUTF8, data)
		}
	})
}

func bounded(n, limit int) int {
	if n < 0 {
		n = -(n + 1)
	}
	return n % limit
}

func TestCaptureOfManySmallPieces(t *testing.T) {
	c := newCapture(kept.Limits{Memory: 11})
	for i := range 1000 {
		c.write([]byte{byte('a' + i%26)})
	}
	c.finish(false)
	s := c.stream()
	if string(s.Head) != "abcdef" || string(s.Tail) != "hijkl" || s.Bytes != 1000 || s.SHA256 != "" {
		t.Errorf("%q %q %d", s.Head, s.Tail, s.Bytes)
	}
}
