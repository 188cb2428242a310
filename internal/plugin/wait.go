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
)

const waitLong = `Wait until calls have ended, and print how.

` + exitCodesHelp + `
Of several calls the exit code is that of the first, in the order given, that isn't 0. With --timeout it is 125 when
a call is still going on then.`

const waitExample = `  kubectl toolcall wait nightly && echo fine
  kubectl toolcall wait first second --timeout 5m`

func newWait(s *session) *cobra.Command {
	var timeout time.Duration
	command := &cobra.Command{
		Use:               "wait NAME...",
		Short:             "Wait until calls have ended",
		Long:              waitLong,
		Example:           waitExample,
		Args:              someCalls,
		Annotations:       map[string]string{annotationCode: "yes"},
		ValidArgsFunction: s.completeCalls(-1),
		RunE: func(command *cobra.Command, args []string) error {
			if timeout < 0 {
				return fmt.Errorf("--timeout %s: give how long to wait, e.g. 5m, or 0 for as long as it takes", timeout)
			}
			c, err := s.connect()
			if err != nil {
				return err
			}
			ctx := command.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			return s.waitAll(ctx, c, args)
		},
	}
	command.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait, e.g. 5m; 0 is for as long as it takes")
	return command
}

// waitAll waits for one call after the other: all run meanwhile.
func (s *session) waitAll(ctx context.Context, c *cluster, names []string) error {
	var failed []error
	code := 0
	for _, name := range names {
		this := codeFailed
		call, err := c.follow().Wait(ctx, c.key(name), follow.Watcher{})
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			failed = append(failed, fmt.Errorf("call %s has not ended in the time of --timeout", name))
		case err != nil:
			failed = append(failed, fmt.Errorf("wait for call %s: %w", name, err))
		default:
			this = exitCode(call)
			fmt.Fprintln(s.Out, ending(call))
		}
		if code == 0 {
			code = this
		}
	}
	if code == 0 {
		return nil
	}
	return &exitError{code: code, err: errors.Join(failed...)}
}

// ending is a call's end on one line.
func ending(call *v1alpha1.ToolCall) string {
	text := call.Name + " " + string(call.Status.Phase) + " " + call.Status.Reason
	if call.Status.ExitCode != nil {
		text += " exit " + strconv.Itoa(int(*call.Status.ExitCode))
	}
	if call.Status.DurationMilliseconds != nil {
		text += " after " + milliseconds(*call.Status.DurationMilliseconds)
	}
	return oneLine(text)
}
