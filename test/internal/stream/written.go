package stream

import (
	"crypto/sha256"
	"crypto/sha3"
	"encoding/hex"
	"fmt"
	"io"
	"time"

	"toolcall.dev/operator/internal/output"
)

// BlockSize is the size of a block, the unit in which a Written is written.
const BlockSize = 64 << 10

// Written is what a program writes to both streams: blocks that are all different, so that none can be lost, doubled or swapped
// unseen.
type Written struct {
	// Seed tells the streams of one program from those of another.
	Seed   string
	Blocks int
}

// Bytes is the length of each stream.
func (w Written) Bytes() int64 { return int64(w.Blocks) * BlockSize }

// Python is the program. It writes a block to each stream in turns, and sleeps after each turn so that the whole takes at least
// that time.
func (w Written) Python(during time.Duration) string {
	return fmt.Sprintf(`import hashlib, sys, time
for i in range(%d):
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name).buffer
        stream.write(hashlib.shake_128(f"%s {name} {i}".encode()).digest(%d))
        stream.flush()
    time.sleep(%g)
`, w.Blocks, w.Seed, BlockSize, during.Seconds()/float64(w.Blocks))
}

// Reader gives a stream as the program writes it.
func (w Written) Reader(of output.Stream) io.Reader { return &reader{Written: w, stream: of} }

// SHA256 is the hash of a stream in hexadecimal digits.
func (w Written) SHA256(of output.Stream) string {
	digest := sha256.New()
	_, _ = io.Copy(digest, w.Reader(of))
	return hex.EncodeToString(digest.Sum(nil))
}

type reader struct {
	Written
	stream output.Stream
	next   int
	left   []byte
}

func (r *reader) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		if r.next == r.Blocks {
			return 0, io.EOF
		}
		hash := sha3.NewSHAKE128()
		fmt.Fprintf(hash, "%s %s %d", r.Seed, r.stream, r.next)
		r.left = make([]byte, BlockSize)
		_, _ = hash.Read(r.left)
		r.next++
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// Checker compares what is written to it with what there should be, byte by byte.
type Checker struct {
	want io.Reader
	at   int64
}

// NewChecker expects what want gives.
func NewChecker(want io.Reader) *Checker { return &Checker{want: want} }

// Bytes is how many were as they should be.
func (c *Checker) Bytes() int64 { return c.at }

// Write fails at the first byte that is another one.
func (c *Checker) Write(p []byte) (int, error) {
	want := make([]byte, len(p))
	n, err := io.ReadFull(c.want, want)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return 0, fmt.Errorf("read what is expected: %w", err)
	}
	for i := range p {
		switch {
		case i >= n:
			return i, fmt.Errorf("%d bytes come after the end, which is at %d", len(p)-i, c.at)
		case p[i] != want[i]:
			return i, fmt.Errorf("the byte at offset %d is %#x, not %#x", c.at, p[i], want[i])
		}
		c.at++
	}
	return len(p), nil
}

// Rest is an error when not everything has come.
func (c *Checker) Rest() error {
	if n, _ := io.Copy(io.Discard, c.want); n > 0 {
		return fmt.Errorf("%d bytes are missing at the end, after %d", n, c.at)
	}
	return nil
}
