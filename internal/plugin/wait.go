package plugin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const waitLong = `Wait until calls have finished, and print their outcome.

` + exitCodesHelp + `
For several calls, the exit code is the first one that is not 0, in the order of the arguments, and with -l and --all in the
order of their creation. A call that has not finished within --timeout counts as 125, and so does a selection without calls.
Calls that are created while the command waits aren't waited for.`

const waitExample = `  kubectl toolcall wait nightly && echo ok
  kubectl toolcall wait first second --timeout 5m
  kubectl toolcall wait -l job=nightly
  kubectl toolcall wait nightly -o jsonpath='{.status.exitCode}'
  kubectl toolcall wait --all --timeout 10m`

func newWait(c *cli) *cobra.Command {
	var timeout time.Duration
	targets, formats := &callTargets{}, newOutputFormats()
	command := &cobra.Command{
		Use:               "wait (NAME... | -l SELECTOR | --all)",
		Short:             "Wait until calls have finished",
		Long:              waitLong,
		Example:           waitExample,
		Args:              targets.args,
		Annotations:       map[string]string{annotationCode: "yes"},
		ValidArgsFunction: c.completeArguments(-1, listCalls),
		RunE: func(command *cobra.Command, args []string) error {
			if timeout < 0 {
				return fmt.Errorf("--timeout %s: must not be negative; 0 means no timeout", timeout)
			}
			cluster, err := c.connect()
			if err != nil {
				return err
			}
			ctx := command.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			names, err := targets.resolve(ctx, cluster, args)
			if err != nil {
				return err
			}
			if len(names) == 0 {
				return targets.noneSelected(cluster)
			}
			return c.waitAll(ctx, cluster, names, &formats)
		},
	}
	targets.add(command)
	formats.add(command)
	command.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait for all calls together, e.g. 5m; 0 means no timeout")
	return command
}

// maxWaits is how many calls are waited for at the same time; each of the others has its turn when one has finished.
const maxWaits = 50

// waited is what came of waiting for a call.
type waited struct {
	call *v1alpha1.ToolCall
	err  error
}

// waitEach waits for calls, and hands over what came of each, in the order of the names. Each is watched from the start, so that none is
// missed that is deleted soon after its end.
func (c *cluster) waitEach(ctx context.Context, names []string) iter.Seq2[string, waited] {
	results := make([]chan waited, len(names))
	for i := range names {
		results[i] = make(chan waited, 1)
	}
	go func() {
		var group errgroup.Group
		group.SetLimit(maxWaits)
		for i, name := range names {
			group.Go(func() error {
				results[i] <- c.waitOne(ctx, name)
				return nil
			})
		}
		_ = group.Wait()
	}()
	return func(yield func(string, waited) bool) {
		for i, name := range names {
			if !yield(name, <-results[i]) {
				return
			}
		}
	}
}

// lookTime is how long it may take to look at a call when the time to wait is over.
const lookTime = 10 * time.Second

func (c *cluster) waitOne(ctx context.Context, name string) waited {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		call, err := c.follow().Wait(ctx, c.key(name), follow.Watcher{})
		return waited{call, err}
	}
	// It had no turn before: it may have finished long ago.
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
	defer cancel()
	call, err := c.getCall(look, name)
	if err == nil && !call.Status.Phase.Terminal() {
		err = context.DeadlineExceeded
	}
	return waited{call, err}
}

// waitAll waits for the calls.
func (c *cli) waitAll(ctx context.Context, cluster *cluster, names []string, formats *outputFormats) error {
	show, err := c.outcomePrinter(formats)
	if err != nil {
		return err
	}
	var failed []error
	code := 0
	for name, result := range cluster.waitEach(ctx, names) {
		callCode, call, err := codeFailed, result.call, result.err
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			failed = append(failed, fmt.Errorf("call %s did not finish within --timeout", name))
		case err != nil:
			failed = append(failed, fmt.Errorf("wait for call %s: %w", name, err))
		default:
			callCode = exitCode(call)
			if err := show(call); err != nil {
				return err
			}
			if callCode != 0 && wasRefused(&call.Status) {
				fmt.Fprintf(c.ErrOut, "call %s: %s\n", name, terminal.SafeLine(call.Status.Message))
			}
			if about := aboutFailure(&call.Status); about != "" && call.Status.Reason != v1alpha1.ReasonNonZeroExit {
				fmt.Fprintf(c.ErrOut, "call %s: for what to do, see %s\n", name, terminal.SafeLine(about))
			}
		}
		if code == 0 {
			code = callCode
		}
	}
	if code == 0 {
		return nil
	}
	return &exitError{code: code, err: errors.Join(failed...)}
}

// outcomePrinter returns a function that prints a finished call: its outcome on a line, or the object.
func (c *cli) outcomePrinter(formats *outputFormats) (func(*v1alpha1.ToolCall) error, error) {
	if !formats.isObject() {
		return func(call *v1alpha1.ToolCall) error {
			_, err := fmt.Fprintln(c.Out, outcomeLine(call))
			return err
		}, nil
	}
	printer, err := formats.ToPrinter()
	if err != nil {
		return nil, err
	}
	return func(call *v1alpha1.ToolCall) error {
		call.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolCall"))
		return printer.PrintObj(call, c.Out)
	}, nil
}

// outcomeLine is the outcome of a finished call on one line.
func outcomeLine(call *v1alpha1.ToolCall) string {
	text := call.Name + " " + string(call.Status.Phase) + " " + call.Status.Reason
	if call.Status.ExitCode != nil {
		text += " exit " + strconv.Itoa(int(*call.Status.ExitCode))
	}
	if call.Status.DurationMilliseconds != nil {
		text += " after " + formatMilliseconds(*call.Status.DurationMilliseconds)
	}
	return terminal.SafeLine(text)
}
