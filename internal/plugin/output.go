package plugin

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
)

// Ways to show output.
const (
	liveAuto   = "auto"
	liveAlways = "always"
	liveNever  = "never"
)

// liveHelp is part of the help of the commands that show output.
const liveHelp = `Output is shown as it is written, line by line, from the log of the call's pod; what the log doesn't give comes from
the call's status at the end. A pod's log mixes standard output and standard error, unless the cluster has the feature
PodLogsQuerySplitStreams. Where they can't be told apart and go to different places, e.g. with > file, --live=auto
shows both at the end, each where it belongs, and --live=always shows both on standard output as they come.`

// outputFlags say how output is shown.
type outputFlags struct {
	live string
}

func (f *outputFlags) add(command *cobra.Command) {
	command.Flags().StringVar(&f.live, "live", liveAuto, "show output while it is written: auto, always or never")
	must(command.RegisterFlagCompletionFunc("live", completeFrom(liveAuto, liveAlways, liveNever)))
}

func (f *outputFlags) validate() error {
	switch f.live {
	case liveAuto, liveAlways, liveNever:
		return nil
	default:
		return fmt.Errorf("--live=%s: say auto, always or never", f.live)
	}
}

// show prepares to show a call's output.
func (f *outputFlags) show(s *session) *shown {
	shown := &shown{out: s.Out, errs: s.ErrOut, live: f.live != liveNever, apart: f.live == liveAuto}
	if sameFile(s.Out, s.ErrOut) {
		// In one place both streams are wanted in the order in which they were written.
		shown.mixed = true
	}
	return shown
}

// nothingShown is for those who want the result as an object.
func nothingShown(s *session) *shown { return &shown{errs: s.ErrOut} }

// sameFile says whether two writers lead to one terminal, file or pipe.
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

// shown writes what a call writes.
type shown struct {
	// out is nil to show no output.
	out, errs          io.Writer
	live, apart, mixed bool
	changed            func(*v1alpha1.ToolCall)
	// lost is called once nobody reads out any more.
	lost   func()
	failed atomic.Bool
}

func (s *shown) watcher() follow.Watcher {
	w := follow.Watcher{
		Changed: s.changed,
		Late:    !s.live,
		Notice:  func(text string) { fmt.Fprintln(s.errs, "note: "+visible(text)) },
	}
	if s.out == nil {
		return w
	}
	w.Output = func(chunk []byte) { s.write(s.out, chunk) }
	if !s.mixed {
		w.Errors, w.Apart = func(chunk []byte) { s.write(s.errs, chunk) }, s.apart
	}
	return w
}

func (s *shown) write(to io.Writer, chunk []byte) {
	if s.failed.Load() {
		return
	}
	if _, err := to.Write(chunk); err != nil {
		s.failed.Store(true)
		if s.lost != nil {
			s.lost()
		}
	}
}

func (s *shown) broken() bool { return s.failed.Load() }
