package audit

import (
	"fmt"
	"io"
)

// Lines writes each record as a line into a stream. What a stream has can't be read back.
type Lines struct {
	To io.Writer
	// isTorn says that the last line has no end.
	isTorn bool
}

// Write implements Sink.
func (l *Lines) Write(r Record) error {
	line, err := r.line()
	if err != nil {
		return fmt.Errorf("encode the record %s: %w", r.ID, err)
	}
	if l.isTorn {
		line = append([]byte("\n"), line...)
	}
	n, err := l.To.Write(line)
	if err != nil {
		l.isTorn = l.isTorn || n > 0
		return fmt.Errorf("write the record %s: %w", r.ID, err)
	}
	l.isTorn = false
	return nil
}
