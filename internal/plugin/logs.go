package plugin

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
)

const logsLong = `Print what a call wrote.

Of a finished call that is its standard output and standard error; of one that runs, what it has written so far, and
with -f all until its end. The exit code is 0 whatever became of the call: wait gives the call's.

` + liveHelp

const logsExample = `  kubectl toolcall logs nightly
  kubectl toolcall logs -f nightly
  kubectl toolcall logs nightly 2>/dev/null    # standard output alone`

func newLogs(s *session) *cobra.Command {
	var output outputFlags
	var following bool
	command := &cobra.Command{
		Use:               "logs [-f] NAME",
		Short:             "Print a call's output",
		Long:              logsLong,
		Example:           logsExample,
		Args:              oneCall,
		ValidArgsFunction: s.completeCalls(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := output.validate(); err != nil {
				return err
			}
			c, err := s.connect()
			if err != nil {
				return err
			}
			return s.logs(command.Context(), c, args[0], output.show(s), following)
		},
	}
	output.add(command)
	command.Flags().BoolVarP(&following, "follow", "f", false, "stay until the call has ended")
	return command
}

func (s *session) logs(ctx context.Context, c *cluster, name string, shown *shown, following bool) error {
	call, err := c.getCall(ctx, name)
	if err != nil {
		return err
	}
	if !following && !follow.Finished(call) {
		return s.logSoFar(ctx, c, call)
	}
	done, err := c.follow().Wait(ctx, c.key(name), shown.watcher())
	if err != nil {
		return fmt.Errorf("follow call %s: %w", name, err)
	}
	if done.Status.Streams == nil {
		fmt.Fprintf(s.ErrOut, "call %s wrote nothing that is known: %s (%s): %s\n", name, done.Status.Phase, done.Status.Reason, visible(done.Status.Message))
	}
	return nil
}

// logSoFar prints the log of a call that runs.
func (s *session) logSoFar(ctx context.Context, c *cluster, call *v1alpha1.ToolCall) error {
	if call.Status.Pod == "" {
		fmt.Fprintf(s.ErrOut, "call %s hasn't started: kubectl toolcall logs -f %s waits for it\n", call.Name, call.Name)
		return nil
	}
	log, err := c.core.Pods(call.Namespace).GetLogs(call.Status.Pod, &corev1.PodLogOptions{}).Stream(ctx)
	switch {
	case apierrors.IsBadRequest(err):
		fmt.Fprintf(s.ErrOut, "call %s has only just started, its log isn't there yet\n", call.Name)
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("what a call has written before its end is in its pod's log, which needs the right to get pods/log (the ClusterRole toolcall-user has it): %w", err)
	case err != nil:
		return fmt.Errorf("read the log of pod %s: %w", call.Status.Pod, err)
	}
	defer log.Close()
	_, err = io.Copy(s.Out, log)
	return err
}
