package calls

import (
	"context"
	"fmt"
	"io"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

// liveAlways is the value of --live that shows output while a call runs.
const liveAlways = "always"

// liveHelp is part of the help of the commands that show output.
const liveHelp = `Output is shown while the command writes it, standard output and standard error each in its place. --live=never shows it
when the call has finished. A line "note:" on standard error says which part of long output wasn't kept.

On a terminal, control characters in the output appear in visible form, such as ^[ for escape, so that the output
can't control the terminal. --raw turns that off. Pipes and files get every byte unchanged.`

// NewDisplay returns how to show the output of a call: while it runs, or at its end.
func NewDisplay(c *cli.CLI, live bool) *display {
	return &display{
		Out: c.Out, errs: c.ErrOut, live: live,
		// In one place, people want both streams in the order in which they come.
		Mixed: sameFile(c.Unfiltered.Out, c.Unfiltered.ErrOut),
	}
}

// noDisplay shows messages and no output.
func noDisplay(c *cli.CLI) *display { return &display{errs: c.ErrOut} }

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
	// Out is nil to show no output.
	Out, errs   io.Writer
	live, Mixed bool
	// Changed is called with each state of the call.
	Changed func(*v1alpha1.ToolCall)
	// until, if set, ends the display before the call has finished.
	until func(*v1alpha1.ToolCall) bool
	// readerLost is called once a write has failed, with the error.
	readerLost func(*cli.ExitError)
	// failed is the error of a write that has failed. Writes come one at a time.
	failed *cli.ExitError
}

// follow shows a call, which exists, until it finishes. left is the error if the context ends before.
func (d *display) follow(ctx context.Context, c *cli.Cluster, key types.NamespacedName, left error) (*v1alpha1.ToolCall, error) {
	done, err := c.Follow().Wait(ctx, key, d.watcher())
	c.Flush()
	if apierrors.IsNotFound(err) {
		err = follow.ErrDeleted // It was deleted before the first read.
	}
	switch {
	case d.failed != nil:
		return nil, d.failed
	case err != nil && ctx.Err() != nil:
		return nil, &cli.ExitError{Code: cli.CodeCancelled, Err: left}
	case err != nil:
		return nil, &cli.ExitError{Code: cli.CodeFailed, Err: fmt.Errorf("follow call %s: %w", key.Name, err)}
	}
	return done, nil
}

func (d *display) watcher() follow.Watcher {
	w := follow.Watcher{
		Changed: d.Changed,
		Until:   d.until,
		AtEnd:   !d.live,
		Notice:  func(text string) { fmt.Fprintln(d.errs, "note: "+terminal.Safe(text)) },
	}
	if d.Out == nil {
		return w
	}
	w.Output = func(chunk []byte) { d.write(d.Out, chunk) }
	if !d.Mixed {
		w.Errors = func(chunk []byte) { d.write(d.errs, chunk) }
	}
	return w
}

func (d *display) write(to io.Writer, chunk []byte) {
	if d.failed != nil {
		return
	}
	if _, err := to.Write(chunk); err != nil {
		d.failed = cli.OutputError(err, cli.CodeFailed)
		if d.readerLost != nil {
			d.readerLost(d.failed)
		}
	}
}
