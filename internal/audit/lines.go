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
	line := r.line()
	if l.isTorn {
		line = append([]byte("\n"), line...)
	}
	n, err := l.To.Write(line)
	l.isTorn = err != nil && (l.isTorn || n > 0)
	if err != nil {
		return fmt.Errorf("write the record %s: %w", r.ID, err)
	}
	return nil
}
