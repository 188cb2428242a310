package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"toolcall.dev/operator/test/internal/figures"
)

// progressLine is one line that is written over on a terminal, and a line for every fifth round elsewhere.
type progressLine struct {
	out      io.Writer
	terminal bool
	began    time.Time
}

func newProgressLine(out io.Writer) *progressLine {
	p := &progressLine{out: out, began: time.Now()}
	if file, ok := out.(*os.File); ok {
		info, err := file.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

func (p *progressLine) show(round, rounds int, kind string, done []sample) {
	text := fmt.Sprintf("bench: round %d of %d, %.0f s", round, rounds, time.Since(p.began).Seconds())
	for _, k := range allKinds {
		if s := figures.Summarize(totals(done, k)); s.Count > 0 {
			text += fmt.Sprintf(", %s p50 %.3f s", k, s.P50)
		}
	}
	switch {
	case p.terminal:
		fmt.Fprintf(p.out, "\r\033[K%s, now %s", text, kind)
	case kind == kindPod && round%5 == 1:
		fmt.Fprintln(p.out, text)
	}
}

func (p *progressLine) end() {
	if p.terminal {
		fmt.Fprintln(p.out)
	}
}
