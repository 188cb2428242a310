package files

import (
	"fmt"
	"io"
	"sync"
	"time"

	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const (
	// transferDelay is how long a transfer takes until its progress is shown, transferInterval how often it is then.
	transferDelay    = time.Second
	transferInterval = 250 * time.Millisecond
)

// transferProgress shows on a terminal how far a transfer is.
type transferProgress struct {
	// out is nil where nothing is shown.
	out           io.Writer
	mu            sync.Mutex
	started, last time.Time
	shown         bool
}

// newTransferProgress shows progress on standard error if that is a terminal. The text is numbers alone, so that it needs no filter.
func newTransferProgress(c *cli.CLI, quiet bool) *transferProgress {
	p := &transferProgress{started: time.Now()}
	if !quiet && terminal.Is(c.Unfiltered.ErrOut) {
		p.out = c.Unfiltered.ErrOut
	}
	return p
}

// report receives how many bytes were carried, of how many; total is -1 when that isn't known.
func (p *transferProgress) report(done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.out == nil || now.Sub(p.started) < transferDelay || now.Sub(p.last) < transferInterval {
		return
	}
	p.last, p.shown = now, true
	text := formatBytes(done)
	if total > 0 {
		text += fmt.Sprintf(" of %s, %d %%", formatBytes(total), 100*done/total)
	}
	fmt.Fprintf(p.out, "\r\x1b[K%s", text)
}

// end clears the line for what is printed next.
func (p *transferProgress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.shown = false
	}
}

func formatBytes(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
