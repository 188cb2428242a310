package files

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

func (c *call) stat() (Result, error) {
	p, err := c.resolve(c.req.Path, how{})
	if err != nil {
		return Result{}, err
	}
	defer p.close()
	entry := newEntry(p.path, &p.st)
	if entry.Type == TypeLink {
		target, err := readLink(p.fd)
		if err != nil {
			return Result{}, fileError("read the symbolic link", p.path, err)
		}
		entry.Target, entry.TargetBase64 = exact(target)
	}
	out := newLines(c.stdout)
	if err := out.write(entry); err != nil {
		return Result{}, err
	}
	return Result{Path: p.path, Bytes: entry.Size, Matches: 1}, out.flush()
}

// lines writes one JSON object a line.
type lines struct {
	buffer  *bufio.Writer
	encoder *json.Encoder
}

func newLines(w io.Writer) *lines {
	buffer := bufio.NewWriterSize(w, 16<<10)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	return &lines{buffer, encoder}
}

func (l *lines) write(v any) error {
	if err := l.encoder.Encode(v); err != nil {
		return fmt.Errorf("write the output: %w", &outputError{err})
	}
	return nil
}

func (l *lines) flush() error {
	if err := l.buffer.Flush(); err != nil {
		return fmt.Errorf("write the output: %w", &outputError{err})
	}
	return nil
}
