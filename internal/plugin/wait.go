package plugin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const waitLong = `Wait until calls have finished, and print their outcome.

` + exitCodesHelp + `
For several calls, the exit code is the first one that is not 0, in the order of the arguments. It is 125 if a call has
not finished within --timeout.`

const waitExample = `  kubectl toolcall wait nightly && echo ok
  kubectl toolcall wait first second --timeout 5m`

func newWait(c *cli) *cobra.Command {
	var timeout time.Duration
	command := &cobra.Command{
		Use:               "wait NAME...",
		Short:             "Wait until calls have finished",
		Long:              waitLong,
		Example:           waitExample,
		Args:              requireCalls,
		Annotations:       map[string]string{annotationCode: "yes"},
		ValidArgsFunction: c.completeCalls(-1),
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
			return c.waitAll(ctx, cluster, args)
		},
	}
	command.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait for all calls together, e.g. 5m; 0 means no timeout")
	return command
}

// waitAll waits for the calls one after the other. The order doesn't matter: all of them run meanwhile.
func (c *cli) waitAll(ctx context.Context, cluster *cluster, names []string) error {
	var failed []error
	code := 0
	for _, name := range names {
		callCode := codeFailed
		call, err := cluster.follow().Wait(ctx, cluster.key(name), follow.Watcher{})
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			failed = append(failed, fmt.Errorf("call %s did not finish within --timeout", name))
		case err != nil:
			failed = append(failed, fmt.Errorf("wait for call %s: %w", name, err))
		default:
			callCode = exitCode(call)
			fmt.Fprintln(c.Out, outcomeLine(call))
			if callCode != 0 && len(call.Status.Refused) > 0 {
				fmt.Fprintf(c.ErrOut, "call %s: %s\n", name, terminal.SafeLine(call.Status.Message))
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
