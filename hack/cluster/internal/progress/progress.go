// Package progress prints numbered steps with the time each one took.
package progress

import (
	"fmt"
	"io"
	"time"
)

// Printer counts steps up to a total that is known beforehand.
type Printer struct {
	out   io.Writer
	total int
	next  int
	now   func() time.Time
}

// New makes a printer for total steps.
func New(out io.Writer, total int) *Printer {
	return &Printer{out: out, total: total, now: time.Now}
}

// Step runs one step and prints how it ended.
func (p *Printer) Step(title string, run func() error) error {
	p.next++
	fmt.Fprintf(p.out, "[%d/%d] %s ... ", p.next, p.total, title)
	started := p.now()
	err := run()
	if err != nil {
		fmt.Fprintln(p.out, "failed")
		return fmt.Errorf("%s: %w", title, err)
	}
	fmt.Fprintln(p.out, Seconds(p.now().Sub(started)))
	return nil
}

// Seconds renders a duration the way steps show it.
func Seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}
