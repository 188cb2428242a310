// Command bench measures the project. Each of its commands measures one thing, prints tables and saves every figure as
// JSON: calls beside bare Pods and Jobs on a cluster, the operator alone against an API server without a node, and
// what operator and runner cost when nothing happens.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"toolcall.dev/operator/test/bench/calls"
	"toolcall.dev/operator/test/bench/figures"
	"toolcall.dev/operator/test/bench/footprint"
	"toolcall.dev/operator/test/bench/operator"
)

// command is what measures one thing.
type command interface {
	// AddFlags adds the command's flags, those that every command has among them.
	AddFlags(*flag.FlagSet) *figures.Options
	// Measure fills the report, and says what it does.
	Measure(ctx context.Context, say func(format string, args ...any)) error
	// Report is empty before, and can have that of an earlier run read into it.
	Report() figures.Report
}

// limited is a command with limits; its verdict is the error when a figure is over one.
type limited interface{ Verdict() error }

const usage = `Usage: bench COMMAND [flags]

  calls      calls beside bare Pods and Jobs on the current cluster
  operator   the operator alone, against an API server of its own without a node; and that API server's floor
  footprint  memory and processor time of the operator and of a runner at rest

'bench COMMAND -h' lists the flags.
`

func commandNamed(name string) command {
	switch name {
	case "calls":
		return &calls.Command{}
	case "operator":
		return &operator.Command{}
	case "footprint":
		return &footprint.Command{}
	}
	return nil
}

func main() {
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	name := strings.Join(args[:min(1, len(args))], "")
	c := commandNamed(name)
	if c == nil {
		fmt.Fprint(progress, usage)
		if name == "-h" || name == "-help" || name == "--help" {
			return flag.ErrHelp
		}
		return fmt.Errorf("%q is no command", name)
	}
	o, err := parse(c, args, progress)
	if err != nil {
		return err
	}
	report := c.Report()
	if o.From != "" {
		if err := figures.Read(o.From, report); err != nil {
			return err
		}
		figures.Print(out, report, o.Markdown)
		return nil
	}
	report.Head().Begin("go run ./test/bench " + strings.Join(args, " "))
	if err := c.Measure(ctx, func(format string, args ...any) { fmt.Fprintf(progress, "bench: "+format+"\n", args...) }); err != nil {
		return err
	}
	report.Head().End()
	figures.Print(out, report, o.Markdown)
	err = figures.Save(o.JSON, report)
	if l, ok := c.(limited); ok {
		err = errors.Join(err, l.Verdict())
	}
	return err
}

// parse reads the flags behind the command's name.
func parse(c command, args []string, usage io.Writer) (*figures.Options, error) {
	fs := flag.NewFlagSet("bench "+args[0], flag.ContinueOnError)
	fs.SetOutput(usage)
	o := c.AddFlags(fs)
	if err := fs.Parse(args[1:]); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("arguments are not used: %q", fs.Args())
	}
	return o, nil
}
