package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"

	"toolcall.dev/operator/internal/result"
)

// capture keeps the first and the last bytes of a stream, and counts and hashes all of it.
type capture struct {
	head, tail       []byte
	headMax, tailMax int
	// next is the position of the oldest byte of a full tail, which the next byte replaces.
	next  int
	bytes int64
	hash  hash.Hash
	utf8  validator
}

func newCapture(limit int) *capture {
	limit = max(limit, 0)
	return &capture{headMax: limit - limit/2, tailMax: limit / 2, hash: sha256.New()}
}

func (c *capture) write(p []byte) {
	if len(p) == 0 {
		return
	}
	c.bytes += int64(len(p))
	c.hash.Write(p)
	c.utf8.write(p)
	n := min(c.headMax-len(c.head), len(p))
	c.head = append(c.head, p[:n]...)
	c.keepLast(p[n:])
}

// keepLast keeps the last tailMax bytes: first in a growing slice, then in a ring.
func (c *capture) keepLast(p []byte) {
	if len(p) > c.tailMax {
		p = p[len(p)-c.tailMax:]
		c.tail, c.next = append(c.tail[:0], p...), 0
		return
	}
	n := min(c.tailMax-len(c.tail), len(p))
	c.tail = append(c.tail, p[:n]...)
	for p = p[n:]; len(p) > 0; {
		n := copy(c.tail[c.next:], p)
		c.next = (c.next + n) % len(c.tail)
		p = p[n:]
	}
}

// stream returns what was captured. whole says that the stream was read to its end.
func (c *capture) stream(whole bool) result.Stream {
	s := result.Stream{Head: c.head, Bytes: c.bytes, InvalidUTF8: c.utf8.invalid || c.utf8.isPartial()}
	s.Tail = append(append(s.Tail, c.tail[c.next:]...), c.tail[:c.next]...)
	if whole {
		s.SHA256 = hex.EncodeToString(c.hash.Sum(nil))
	}
	return s
}
