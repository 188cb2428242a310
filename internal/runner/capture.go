package runner

import (
	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
)

// capture keeps a stream, and looks at its encoding.
type capture struct {
	kept *kept.Stream
	utf8 validator
}

func newCapture(limits kept.Limits) *capture { return &capture{kept: kept.New(limits)} }

func (c *capture) write(p []byte) {
	// It doesn't fail.
	_, _ = c.kept.Write(p)
	c.utf8.write(p)
}

// finish ends the stream. whole says that it was read to its end.
func (c *capture) finish(whole bool) { c.kept.Finish(whole, flushLimit) }

// stream returns what was captured. It is for after the end.
func (c *capture) stream() result.Stream {
	info := c.kept.Info()
	s := result.Stream{Bytes: info.Bytes, SHA256: info.SHA256, InvalidUTF8: c.utf8.invalid || c.utf8.isPartial()}
	s.Head, s.Tail = c.kept.Memory()
	return s
}
