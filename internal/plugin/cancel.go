package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"toolcall.dev/operator/internal/follow"
)

const cancelLong = `Request the cancellation of calls. The command gets SIGTERM, and SIGKILL after 5 seconds. Finished calls ignore the
request; -l and --all leave them out.

With --wait, wait until the calls have finished, and print their outcome: a call that finished before the request reached it
can have another outcome than Cancelled. -o prints the calls, with --wait as they are when they have finished.

The exit code is 0 if all requests were made, also if -l or --all select no call that could be cancelled, and with --wait if
all calls have finished, whatever their outcome. Otherwise it is 1.`

const cancelExample = `  kubectl toolcall cancel nightly
  kubectl toolcall cancel first second --wait
  kubectl toolcall cancel -l team=search
  kubectl toolcall cancel --all --wait --timeout 1m`

// cancelOptions are the flags of cancel.
type cancelOptions struct {
	*cli
	callTargets
	wait    bool
	timeout time.Duration
	formats *changeFormats
}

func newCancel(c *cli) *cobra.Command {
	o := &cancelOptions{cli: c, formats: newChangeFormats()}
	command := &cobra.Command{
		Use:               "cancel (NAME... | -l SELECTOR | --all)",
		Short:             "Cancel calls",
		Long:              cancelLong,
		Example:           cancelExample,
		Args:              o.args,
		ValidArgsFunction: c.completeArguments(-1, listUnfinishedCalls),
		RunE: func(command *cobra.Command, args []string) error {
			return o.run(command.Context(), args)
		},
	}
	o.callTargets.add(command)
	flags := command.Flags()
	flags.BoolVar(&o.wait, "wait", false, "wait until the calls have finished")
	flags.DurationVar(&o.timeout, "timeout", 0, "with --wait: how long to wait for all calls together, e.g. 1m; 0 means no timeout")
	o.formats.add(command)
	return command
}

func (o *cancelOptions) run(ctx context.Context, args []string) error {
	switch {
	case o.timeout < 0:
		return fmt.Errorf("--timeout %s: must not be negative; 0 means no timeout", o.timeout)
	case o.timeout > 0 && !o.wait:
		return errors.New("--timeout is for --wait: add --wait, or leave out --timeout")
	}
	if err := o.formats.validate(); err != nil {
		return err
	}
	cluster, err := o.connect()
	if err != nil {
		return err
	}
	names, err := o.resolve(ctx, cluster, args, unfinished...)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		fmt.Fprintf(o.ErrOut, "No calls to cancel in namespace %s.\n", cluster.namespace)
		return nil
	}
	var failed []error
	var requested []string
	for _, name := range names {
		call, err := cluster.follow().Cancel(ctx, cluster.key(name))
		if apierrors.IsNotFound(err) && o.isSelection() {
			continue // It is gone.
		}
		if err != nil {
			failed = append(failed, cluster.notFoundError("call "+name, err))
			continue
		}
		requested = append(requested, name)
		if o.wait && o.formats.isWhole() {
			continue // It is printed when it has finished.
		}
		if err := o.formats.report(o.Out, call, "cancellation requested"); err != nil {
			failed = append(failed, err)
		}
	}
	if o.wait {
		failed = append(failed, o.waitFor(ctx, cluster, requested)...)
	}
	return errors.Join(failed...)
}

// waitFor waits until calls have finished, and prints their outcome.
func (o *cancelOptions) waitFor(ctx context.Context, c *cluster, names []string) []error {
	if o.timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, o.timeout)
		defer stop()
	}
	var failed []error
	for name, result := range c.waitEach(ctx, names) {
		switch err := result.err; {
		case errors.Is(err, context.DeadlineExceeded):
			failed = append(failed, fmt.Errorf("call %s did not finish within --timeout", name))
		case errors.Is(err, follow.ErrDeleted), apierrors.IsNotFound(err):
			// A call that is gone has finished: its process is stopped.
		case err != nil:
			failed = append(failed, fmt.Errorf("wait for call %s: %w", name, err))
		case o.formats.isWhole():
			if err := o.formats.report(o.Out, result.call, ""); err != nil {
				return append(failed, err)
			}
		case !o.formats.isObject():
			fmt.Fprintln(o.Out, outcomeLine(result.call))
		}
	}
	return failed
}
