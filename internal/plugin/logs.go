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
	"toolcall.dev/operator/internal/plugin/terminal"
)

const logsLong = `Print the output of a call.

For a finished call, print its standard output and standard error. For a running call, print its output so far, or with
-f until it has finished. Output of a call in a session is available when the call has finished. The exit code is 0 whatever the outcome of the call: use wait to get that.

` + liveHelp

const logsExample = `  kubectl toolcall logs nightly
  kubectl toolcall logs -f nightly
  kubectl toolcall logs nightly 2>/dev/null    # standard output only`

func newLogs(c *cli) *cobra.Command {
	var output outputFlags
	var following bool
	command := &cobra.Command{
		Use:               "logs [-f] NAME",
		Short:             "Print the output of a call",
		Long:              logsLong,
		Example:           logsExample,
		Args:              requireCall,
		ValidArgsFunction: c.completeCalls(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := output.validate(); err != nil {
				return err
			}
			cluster, err := c.connect()
			if err != nil {
				return err
			}
			return c.logs(command.Context(), cluster, args[0], output.display(c), following)
		},
	}
	output.add(command)
	c.addRawFlag(command)
	command.Flags().BoolVarP(&following, "follow", "f", false, "follow the output until the call has finished")
	return command
}

func (c *cli) logs(ctx context.Context, cluster *cluster, name string, shown *display, following bool) error {
	call, err := cluster.getCall(ctx, name)
	if err != nil {
		return err
	}
	if !following && !follow.Finished(call) {
		return c.printLogSoFar(ctx, cluster, call)
	}
	done, err := cluster.follow().Wait(ctx, cluster.key(name), shown.watcher())
	if err != nil {
		return fmt.Errorf("follow call %s: %w", name, err)
	}
	if done.Status.Streams == nil {
		fmt.Fprintf(c.ErrOut, "call %s has no recorded output: %s (%s): %s\n", name, done.Status.Phase, done.Status.Reason, terminal.Safe(done.Status.Message))
	}
	return nil
}

// printLogSoFar prints the log of the pod of a running call.
func (c *cli) printLogSoFar(ctx context.Context, cluster *cluster, call *v1alpha1.ToolCall) error {
	if follow.InSession(call) {
		fmt.Fprintf(c.ErrOut, "call %s has not finished: the log of the pod has the output of all calls of session %s, so the output of this one is shown when it has finished: kubectl toolcall logs -f %s\n", call.Name, call.Spec.SessionRef.Name, call.Name)
		return nil
	}
	if call.Status.Pod == "" {
		fmt.Fprintf(c.ErrOut, "call %s has not started: to wait for it, run kubectl toolcall logs -f %s\n", call.Name, call.Name)
		return nil
	}
	log, err := cluster.core.Pods(call.Namespace).GetLogs(call.Status.Pod, &corev1.PodLogOptions{}).Stream(ctx)
	switch {
	case apierrors.IsBadRequest(err):
		fmt.Fprintf(c.ErrOut, "call %s is starting: its log is not available yet\n", call.Name)
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the output of a running call is in the log of its pod, which needs permission to get pods/log (the ClusterRole toolcall-user grants it): %w", err)
	case err != nil:
		return fmt.Errorf("read the log of pod %s: %w", call.Status.Pod, err)
	}
	defer log.Close()
	if _, err = io.Copy(c.Out, log); err != nil {
		return fmt.Errorf("copy the log of pod %s: %w", call.Status.Pod, err)
	}
	return nil
}
