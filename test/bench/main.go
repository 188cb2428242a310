// Command bench measures the project. Each of its commands prints one table and saves every figure as JSON: calls beside
// bare Pods and Jobs on a cluster, and the operator alone against an API server without a node.
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
	"toolcall.dev/operator/test/bench/measure"
	"toolcall.dev/operator/test/bench/operator"
)

// command is what measures.
type command interface {
	// AddFlags adds the command's flags, those that every command has among them.
	AddFlags(*flag.FlagSet) *measure.Options
	// Measure fills the report.
	Measure(ctx context.Context, report *measure.Report) error
}

const usage = `Usage: bench COMMAND [flags]

  calls     calls beside bare Pods and Jobs on the current cluster
  operator  the operator alone, against an API server of its own without a node; and that API server's floor

'bench COMMAND -h' lists the flags.
`

func commandNamed(name string) command {
	switch name {
	case "calls":
		return &calls.Command{}
	case "operator":
		return &operator.Command{}
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
	report := measure.NewReport("go run ./test/bench "+strings.Join(args, " "), progress)
	if err := c.Measure(ctx, report); err != nil {
		return err
	}
	report.End()
	return errors.Join(report.Print(out), report.Save(o.JSON), report.Err())
}

// parse reads the flags behind the command's name.
func parse(c command, args []string, usage io.Writer) (*measure.Options, error) {
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
