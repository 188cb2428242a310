package calls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const waitLong = `Wait until calls have finished, and print their outcome.

` + cli.ExitCodesHelp + `
For several calls, the exit code is the first one that is not 0, in the order of the arguments, and with -l and --all in the
order of their creation. A call that has not finished within --timeout counts as 125, and so does a selection without calls.
Calls that are created while the command waits aren't waited for.`

const waitExample = `  kubectl toolcall wait nightly && echo ok
  kubectl toolcall wait first second --timeout 5m
  kubectl toolcall wait -l job=nightly
  kubectl toolcall wait nightly -o jsonpath='{.status.exitCode}'
  kubectl toolcall wait --all --timeout 10m`

func newWait(c *cli.CLI) *cobra.Command {
	var timeout time.Duration
	targets, formats := &callTargets{}, cli.NewFormats()
	command := &cobra.Command{
		Use:               "wait (NAME... | -l SELECTOR | --all)",
		Short:             "Wait until calls have finished",
		Long:              waitLong,
		Example:           waitExample,
		Annotations:       map[string]string{cli.AnnotationCode: "yes"},
		ValidArgsFunction: c.CompleteArguments(-1, cli.ListCalls),
		RunE: c.Connected(func(ctx context.Context, cluster *cli.Cluster, args []string) error {
			ctx, cancel := cli.Within(ctx, timeout)
			defer cancel()
			calls, err := targets.resolve(ctx, cluster, args)
			if err != nil {
				return err
			}
			if len(calls) == 0 {
				return targets.noneSelected(cluster)
			}
			return waitAll(ctx, cluster, calls, formats)
		}),
	}
	targets.add(command)
	formats.Add(command)
	cli.AddTimeoutFlag(command, &timeout, "how long to wait for all calls together, e.g. 5m")
	return command
}

// lookTime is how long it may take to look at a call when the time to wait is over.
const lookTime = 10 * time.Second

// waitEach waits for calls, and hands over what came of each, in their order. Each is watched from the start, so that none is
// missed that is deleted soon after its end. The first watch that fails is noted: an API server that is away is waited for.
func waitEach(ctx context.Context, c *cli.Cluster, calls []metav1.ObjectMeta) iter.Seq2[*v1alpha1.ToolCall, error] {
	var noted sync.Once
	notice := func(text string) { noted.Do(func() { c.Note(false, "note: %s", text) }) }
	return cli.InOrder(len(calls), func(i int) (*v1alpha1.ToolCall, error) {
		call, err := waitOne(ctx, c, &calls[i], notice)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return nil, fmt.Errorf("call %s did not finish within --timeout", calls[i].Name)
		case err != nil:
			return nil, fmt.Errorf("wait for call %s: %w", calls[i].Name, err)
		}
		return call, nil
	})
}

// waitOne waits for a call: for whichever has the name, if only that is known.
func waitOne(ctx context.Context, c *cli.Cluster, of *metav1.ObjectMeta, notice func(string)) (*v1alpha1.ToolCall, error) {
	if problems := content.IsPathSegmentName(of.Name); len(problems) > 0 {
		// The client refuses to ask for it, which would look like a server that is away.
		return nil, fmt.Errorf("no call can have this name: it %s", strings.Join(problems, ", "))
	}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return c.Follow().Wait(ctx, c.Key(of.Name), follow.Watcher{UID: of.UID, Notice: notice})
	}
	// It had no turn before: it may have finished long ago.
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
	defer cancel()
	call, err := c.GetCall(look, of.Name)
	switch {
	case err != nil:
		return nil, err
	case of.UID != "" && of.UID != call.UID:
		return nil, follow.ErrDeleted
	case !call.Status.Phase.Terminal():
		return nil, context.DeadlineExceeded
	}
	return call, nil
}

// waitAll waits for the calls, and prints the outcome of each on a line, or the object.
func waitAll(ctx context.Context, c *cli.Cluster, calls []metav1.ObjectMeta, formats *cli.Formats) error {
	var failed []error
	code := 0
	for call, err := range waitEach(ctx, c, calls) {
		if err != nil {
			failed, code = append(failed, err), cmp.Or(code, cli.CodeFailed)
			continue
		}
		if err := printEnd(c, call, formats); err != nil {
			return errors.Join(append(failed, err)...)
		}
		callCode := cli.ExitCode(call)
		if callCode != 0 && wasRefused(&call.Status) {
			fmt.Fprintf(c.ErrOut, "call %s: %s\n", call.Name, terminal.SafeLine(call.Status.Message))
		}
		if about := aboutFailure(&call.Status); about != "" && call.Status.Reason != v1alpha1.ReasonNonZeroExit {
			fmt.Fprintf(c.ErrOut, "call %s: for what to do, see %s\n", call.Name, terminal.SafeLine(about))
		}
		code = cmp.Or(code, callCode)
	}
	if code == 0 {
		return nil
	}
	return &cli.ExitError{Code: code, Err: errors.Join(failed...)}
}

// printEnd prints the outcome of a finished call on one line, or the object.
func printEnd(c *cli.Cluster, call *v1alpha1.ToolCall, formats *cli.Formats) error {
	if formats.IsObject() {
		return formats.Print(c.Out, call)
	}
	text := call.Name + " " + string(call.Status.Phase) + " " + call.Status.Reason
	text += cli.Optional(" exit %d", call.Status.ExitCode)
	if call.Status.DurationMilliseconds != nil {
		text += " after " + cli.FormatMilliseconds(*call.Status.DurationMilliseconds)
	}
	_, err := fmt.Fprintln(c.Out, terminal.SafeLine(text))
	return err
}

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
	callTargets
	wait    bool
	timeout time.Duration
	formats *cli.Formats
}

func newCancel(c *cli.CLI) *cobra.Command {
	o := &cancelOptions{formats: cli.NewFormats()}
	command := &cobra.Command{
		Use:               "cancel (NAME... | -l SELECTOR | --all)",
		Short:             "Cancel calls",
		Long:              cancelLong,
		Example:           cancelExample,
		ValidArgsFunction: c.CompleteArguments(-1, listUnfinishedCalls),
		RunE:              c.Connected(o.run),
	}
	o.callTargets.add(command)
	command.Flags().BoolVar(&o.wait, "wait", false, "wait until the calls have finished")
	cli.AddTimeoutFlag(command, &o.timeout, "with --wait: how long to wait for all calls together, e.g. 1m")
	cli.CheckBefore(command, o.validate)
	return o.formats.Add(command)
}

func (o *cancelOptions) validate([]string) error {
	if o.timeout > 0 && !o.wait {
		return errors.New("--timeout is for --wait: add --wait, or leave out --timeout")
	}
	return nil
}

func (o *cancelOptions) run(ctx context.Context, c *cli.Cluster, args []string) error {
	calls, err := o.resolve(ctx, c, args, unfinished...)
	if err != nil {
		return err
	}
	if len(calls) == 0 {
		fmt.Fprintf(c.ErrOut, "No calls to cancel in namespace %s.\n", c.Namespace)
		return nil
	}
	var failed []error
	var requested []metav1.ObjectMeta
	for i := range calls {
		call, err := c.Follow().Cancel(ctx, c.Key(calls[i].Name), calls[i].UID)
		if o.isSelection() && isGone(err) {
			continue
		}
		if err != nil {
			failed = append(failed, c.Explain("patch", "toolcalls", "call "+calls[i].Name, err))
			continue
		}
		requested = append(requested, call.ObjectMeta)
		if o.wait && o.formats.IsWhole() {
			continue // It is printed when it has finished.
		}
		failed = append(failed, o.formats.Report(c.Out, call, "cancellation requested"))
	}
	if o.wait {
		failed = append(failed, o.waitFor(ctx, c, requested)...)
	}
	return errors.Join(failed...)
}

// isGone reports that a call isn't there any more, whatever has its name.
func isGone(err error) bool { return errors.Is(err, follow.ErrDeleted) || apierrors.IsNotFound(err) }

// waitFor waits until calls have finished, and prints their outcome; the names of objects have been printed.
func (o *cancelOptions) waitFor(ctx context.Context, c *cli.Cluster, calls []metav1.ObjectMeta) (failed []error) {
	ctx, stop := cli.Within(ctx, o.timeout)
	defer stop()
	for call, err := range waitEach(ctx, c, calls) {
		switch {
		case isGone(err):
			// A call that is gone has finished: its process is stopped.
		case err != nil:
			failed = append(failed, err)
		case o.formats.Format() != "name":
			failed = append(failed, printEnd(c, call, o.formats))
		}
	}
	return failed
}
