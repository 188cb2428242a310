package calls

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"toolcall.dev/operator/api/v1alpha1"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const attachLong = `Follow a call until it has finished, with its output from the start, and exit with its exit code.

Standard input goes to a background call of a session (run --session NAME --background), behind what was sent to it before.
The end of standard input closes that of the call: use --stdin=false to only watch. Other calls get their standard input when
they are created. Let one command at a time send to a call.

Ctrl-C detaches: the call goes on. To stop it, use cancel.

` + cli.ExitCodesHelp + `
The exit code is 130 after Ctrl-C, too.`

const attachExample = `  kubectl toolcall attach server --stdin=false
  echo 'print(6 * 7)' | kubectl toolcall attach interpreter`

// attaching is one run of attach.
type attaching struct {
	*cli.Cluster
	name    string
	stdin   bool
	sending sync.Once
}

func newAttach(c *cli.CLI) *cobra.Command {
	a := &attaching{}
	command := &cobra.Command{
		Use:               "attach NAME",
		Short:             "Follow a call, and pass standard input to it",
		Long:              attachLong,
		Example:           attachExample,
		Args:              cli.RequireCall,
		Annotations:       map[string]string{cli.AnnotationCode: "yes"},
		ValidArgsFunction: c.CompleteArguments(1, cli.ListCalls),
		RunE: c.Connected(func(ctx context.Context, cluster *cli.Cluster, args []string) error {
			a.Cluster, a.name = cluster, args[0]
			// Unless SIGPIPE is caught, a write to a closed pipe ends the program without a word.
			pipe := make(chan os.Signal, 1)
			signal.Notify(pipe, syscall.SIGPIPE)
			defer signal.Stop(pipe)
			ctx, stop := cli.EndedBySignals(ctx)
			defer stop()
			return a.run(ctx)
		}),
	}
	c.AddRawFlag(command)
	command.Flags().BoolVar(&a.stdin, "stdin", true, "pass standard input to a background call of a session")
	return command
}

// run follows the call until it has finished, or the context ends.
func (a *attaching) run(ctx context.Context) error {
	// A call that doesn't exist is an error at once.
	if _, err := a.GetCall(ctx, a.name); err != nil {
		return err
	}
	ctx, detach := context.WithCancel(ctx)
	defer detach()
	// Output and notes come from different goroutines.
	a.ErrOut = &cli.LockedWriter{Mu: &sync.Mutex{}, Out: a.ErrOut}
	shown := NewDisplay(a.CLI, true)
	shown.readerLost = func(*cli.ExitError) { detach() }
	shown.Changed = func(call *v1alpha1.ToolCall) { a.sendInput(ctx, call) }
	done, err := shown.follow(ctx, a.Cluster, a.Key(a.name), fmt.Errorf(
		"detached from call %s, which goes on: to stop it, run kubectl toolcall cancel %s -n %s; to follow it again, kubectl toolcall attach %s -n %s",
		a.name, a.name, a.Namespace, a.name, a.Namespace))
	if err != nil {
		return err
	}
	return ReportOutcome(a.CLI, done)
}

// sendInput begins to pass standard input on once the call runs. It isn't waited for: a read can't be interrupted.
func (a *attaching) sendInput(ctx context.Context, call *v1alpha1.ToolCall) {
	if !a.stdin || !call.Spec.Background || call.Spec.SessionRef == nil || call.Status.Phase != v1alpha1.PhaseRunning {
		return
	}
	a.sending.Do(func() {
		to := outputclient.Input{Namespace: call.Namespace, Session: call.Spec.SessionRef.Name, Call: call.Name}
		go func() {
			err := a.Output.SendInput(ctx, to, a.In)
			if err == nil || ctx.Err() != nil {
				return
			}
			fmt.Fprintln(a.ErrOut, "note: "+terminal.SafeLine(a.explainInput(err).Error()))
		}()
	})
}

// explainInput says why standard input isn't passed on any more.
func (a *attaching) explainInput(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("standard input isn't passed on: it needs permission to create toolsessions/proxy in the group subresources.toolcall.dev, which the ClusterRole toolcall-user grants, and to be the session's creator or to use it: %w", err)
	case errors.Is(err, outputclient.ErrInputTaken):
		return fmt.Errorf("%w: standard input isn't passed on any more", err)
	default:
		return fmt.Errorf("standard input isn't passed on any more: %w", err)
	}
}
