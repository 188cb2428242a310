package plugin

import (
	"bytes"
	"io"
	"sync"
)

// maxPrefixedLine bounds how much of a line is held back until its end. A longer line is printed in parts.
const maxPrefixedLine = 64 << 10

// prefixWriter writes whole lines, each behind a prefix, so that the lines of several calls don't mix.
type prefixWriter struct {
	// mu is shared by all that write to the same place.
	mu     *sync.Mutex
	out    io.Writer
	prefix string
	held   []byte
}

// Write holds back what isn't a whole line.
func (w *prefixWriter) Write(p []byte) (int, error) {
	w.held = append(w.held, p...)
	end := bytes.LastIndexByte(w.held, '\n') + 1
	if end == 0 && len(w.held) < maxPrefixedLine {
		return len(p), nil
	}
	if end == 0 {
		return len(p), w.end()
	}
	lines := w.held[:end]
	w.held = append([]byte{}, w.held[end:]...)
	return len(p), w.writeLines(lines)
}

// end writes what was held back, as a line.
func (w *prefixWriter) end() error {
	if len(w.held) == 0 {
		return nil
	}
	line := append(w.held, '\n')
	w.held = nil
	return w.writeLines(line)
}

func (w *prefixWriter) writeLines(lines []byte) error {
	var text bytes.Buffer
	for line := range bytes.Lines(lines) {
		text.WriteString(w.prefix)
		text.Write(line)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.out.Write(text.Bytes())
	return err
}
