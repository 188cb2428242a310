package audit

import (
	"fmt"
	"io"
)

// Lines writes each record as a line into a stream. What a stream has can't be read back.
type Lines struct{ To io.Writer }

// Write implements Sink.
func (l *Lines) Write(r Record) error {
	if _, err := l.To.Write(r.line()); err != nil {
		return fmt.Errorf("write the record %s: %w", r.ID, err)
	}
	return nil
}
