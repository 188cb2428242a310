package plugin

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/plugin/terminal"
)

// Values of --live.
const (
	liveAlways = "always"
	liveNever  = "never"
)

// liveHelp is part of the help of the commands that show output.
const liveHelp = `Output is shown while the command writes it, standard output and standard error each in its place. --live=never shows it
when the call has finished. A line "note:" on standard error says which part of long output wasn't kept.

On a terminal, control characters in the output appear in visible form, such as ^[ for escape, so that the output
can't control the terminal. --raw turns that off. Pipes and files get every byte unchanged.`

// outputFlags are the flags of the commands that show output.
type outputFlags struct {
	live string
}

func (f *outputFlags) add(command *cobra.Command) {
	command.Flags().StringVar(&f.live, "live", liveAlways, "show output while the call runs: always or never")
	must(command.RegisterFlagCompletionFunc("live", completeFrom(liveAlways, liveNever)))
}

func (f *outputFlags) validate() error {
	switch f.live {
	case liveAlways, liveNever:
		return nil
	default:
		return fmt.Errorf("--live=%s: must be always or never", f.live)
	}
}

// display returns how to show the output of a call.
func (f *outputFlags) display(c *cli) *display {
	return &display{
		out: c.Out, errs: c.ErrOut, live: f.live != liveNever,
		// In one place, people want both streams in the order in which they come.
		mixed: sameFile(c.unfiltered.Out, c.unfiltered.ErrOut),
	}
}

// noDisplay shows messages and no output.
func noDisplay(c *cli) *display { return &display{errs: c.ErrOut} }

// sameFile reports whether two writers lead to the same terminal, file or pipe.
func sameFile(a, b io.Writer) bool {
	one, ok := a.(*os.File)
	two, ok2 := b.(*os.File)
	if !ok || !ok2 {
		return a == b
	}
	first, err := one.Stat()
	second, err2 := two.Stat()
	return err == nil && err2 == nil && os.SameFile(first, second)
}

// display writes the output of a call.
type display struct {
	// out is nil to show no output.
	out, errs   io.Writer
	live, mixed bool
	// changed is called with each state of the call.
	changed func(*v1alpha1.ToolCall)
	// until, if set, ends the display before the call has finished.
	until func(*v1alpha1.ToolCall) bool
	// readerLost is called once a write has failed, because nobody reads the output any more.
	readerLost func()
	failed     atomic.Bool
}

func (d *display) watcher() follow.Watcher {
	w := follow.Watcher{
		Changed: d.changed,
		Until:   d.until,
		AtEnd:   !d.live,
		Notice:  func(text string) { fmt.Fprintln(d.errs, "note: "+terminal.Safe(text)) },
	}
	if d.out == nil {
		return w
	}
	w.Output = func(chunk []byte) { d.write(d.out, chunk) }
	if !d.mixed {
		w.Errors = func(chunk []byte) { d.write(d.errs, chunk) }
	}
	return w
}

func (d *display) write(to io.Writer, chunk []byte) {
	if d.failed.Load() {
		return
	}
	if _, err := to.Write(chunk); err != nil {
		d.failed.Store(true)
		if d.readerLost != nil {
			d.readerLost()
		}
	}
}

// hasFailed reports whether a write has failed.
func (d *display) hasFailed() bool { return d.failed.Load() }
