package calls

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/docurl"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

// aboutFailure is the address of what the documentation says about the reason for which a call failed or was denied, empty for any
// other call.
func aboutFailure(s *v1alpha1.ToolCallStatus) string {
	if s.Phase != v1alpha1.PhaseFailed && s.Phase != v1alpha1.PhaseDenied {
		return ""
	}
	return docurl.Reason(s.Reason)
}

const runLong = `Run one tool call, show its output while it runs, and exit with its exit code.

The command's standard output goes to standard output, its standard error to standard error. The name of the call goes to
standard error once it is created, unless --quiet is set. Ctrl-C cancels the call, also while it is being created, which has ten
seconds left then. A second Ctrl-C stops following it, once the request to cancel it has an answer; a third stops at once.

With --session, the call runs in a session: see "kubectl toolcall session". With --background too, the command waits until
the call runs, prints its name and leaves it running: to stop it, use cancel. A call that ends before that is shown like
any other.

` + liveHelp + `

` + cli.ExitCodesHelp

const runExample = `  # A program with arguments, in the namespace's default environment
  kubectl toolcall run -- git status

  # A shell command line in a given environment, with a variable and a time limit
  kubectl toolcall run --environment repo -e CI=true --timeout 1m --shell 'make test | tail -n 20'

  # Code from a file, and from standard input
  kubectl toolcall run --code python -f script.py
  echo 'print(6 * 7)' | kubectl toolcall run --code python -f -

  # Pass standard input to the program
  kubectl toolcall run --stdin -- wc -l < access.log

  # Start a call and follow it later
  kubectl toolcall run --detach --name nightly --shell ./nightly.sh
  kubectl toolcall logs -f nightly

  # In a session, where files stay from call to call; and a server that runs beside its other calls
  kubectl toolcall run --session dev -- make test
  kubectl toolcall run --session dev --background -- python3 -m http.server

  # Print the object without creating it
  kubectl toolcall run --dry-run -o yaml -- git status`

// RunOptions are the flags of run.
type RunOptions struct {
	*cli.CLI
	Call   Flags
	live   string
	dryRun cli.DryRun
	detach bool
	quiet  bool
	// origin is the call that is run again, empty for none.
	origin string
}

func NewRunOptions(c *cli.CLI) *RunOptions {
	return &RunOptions{CLI: c, dryRun: cli.DryRun{Formats: cli.NewFormats()}}
}

func newRun(c *cli.CLI) *cobra.Command {
	o := NewRunOptions(c)
	command := &cobra.Command{
		Use:         "run [flags] -- PROGRAM [ARGUMENT...]",
		Short:       "Run a tool call and exit with its exit code",
		Long:        runLong,
		Example:     runExample,
		Annotations: map[string]string{cli.AnnotationCode: "yes"},
		RunE:        c.Connected(o.Run),
	}
	o.Call.Add(command, c)
	o.AddFlags(command)
	return command
}

// AddFlags adds the flags that don't describe the call.
func (o *RunOptions) AddFlags(command *cobra.Command) {
	o.AddRawFlag(command)
	flags := command.Flags()
	cli.AddChoice(command, &o.live, "live", liveAlways, "show output while the call runs: always or never", liveAlways, "never")
	flags.BoolVar(&o.detach, "detach", false, "print the name of the call and don't wait for it")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print no progress messages")
	o.dryRun.Add(command, "call", &o.detach)
}

func (o *RunOptions) Run(ctx context.Context, c *cli.Cluster, args []string) error {
	call, err := o.Call.Build(args, o.In)
	if err != nil {
		return err
	}
	call.Namespace = c.Namespace
	return o.submit(ctx, c, call)
}

// submit creates the call and follows it, or prints it where the flags say so.
func (o *RunOptions) submit(ctx context.Context, c *cli.Cluster, call *v1alpha1.ToolCall) (err error) {
	if o.dryRun.Mode != "client" {
		if err := o.joinSession(ctx, c, call); err != nil {
			return err
		}
	}
	if o.dryRun.Mode == "server" {
		if call, err = c.DryRun().Create(ctx, call); err != nil {
			return err
		}
	}
	if o.dryRun.Mode != "none" {
		return o.dryRun.PrintInstead(o.Out, call)
	}
	interrupts, release := catchInterrupts(ctx, o.ErrOut)
	defer release()
	created, err := c.Follow().Create(interrupts.Waiting, call)
	if err != nil {
		return err
	}
	// The name comes before anything else: it is what is needed to look for a call whose follower was ended.
	switch {
	case o.origin != "":
		o.Note(o.quiet, "call %s created, a rerun of %s", created.Name, o.origin)
	case !o.detach:
		o.Note(o.quiet, "call %s created", created.Name)
	}
	switch {
	case o.detach && interrupts.FirstSignal() != nil:
		return cancelDetached(c, created, interrupts)
	case o.detach:
		return o.print(created)
	default:
		return o.follow(c, created, interrupts)
	}
}

// cancelDetached cancels a call that the user didn't want any more while it was being created, and that nobody follows.
func cancelDetached(c *cli.Cluster, call *v1alpha1.ToolCall, i *Interrupts) error {
	fmt.Fprintf(c.ErrOut, "interrupted: cancelling call %s\n", call.Name)
	ctx, end := context.WithTimeout(i.cancelling, cancelTimeout)
	defer end()
	if _, err := c.Follow().Cancel(ctx, client.ObjectKeyFromObject(call), call.UID); err != nil {
		return err
	}
	return &cli.ExitError{Code: cli.CodeCancelled}
}

// print prints a call as -o says, or else its name.
func (o *RunOptions) print(call *v1alpha1.ToolCall) error {
	if o.dryRun.IsObject() {
		return o.dryRun.Print(o.Out, call)
	}
	if _, err := fmt.Fprintln(o.Out, call.Name); err != nil {
		return cli.OutputError(err, cli.CodeFailed)
	}
	return nil
}

// follow shows the call until it finishes, and a background call until it runs. With -o it prints the object instead of
// the output.
func (o *RunOptions) follow(c *cli.Cluster, call *v1alpha1.ToolCall, i *Interrupts) error {
	shown := NewDisplay(o.CLI, o.live == liveAlways)
	if o.dryRun.IsObject() {
		shown = noDisplay(o.CLI)
	}
	delay := cli.ProgressDelay
	if call.Spec.SessionRef != nil {
		delay = cli.SessionCallDelay
	}
	p := cli.NewProgress(o.ErrOut, o.quiet, delay)
	defer p.Stop()
	shown.Changed = p.Update
	if call.Spec.Background {
		shown.until = func(call *v1alpha1.ToolCall) bool { return call.Status.Phase == v1alpha1.PhaseRunning }
	}
	done, err := Wait(c, call, shown, i)
	if err != nil {
		return err
	}
	if !follow.Finished(done) {
		p.Stop()
		o.Note(o.quiet, "call %s runs in the background of session %s: to stop it, run kubectl toolcall cancel %s -n %s", call.Name, call.Spec.SessionRef.Name, call.Name, call.Namespace)
		return o.print(done)
	}
	if o.dryRun.IsObject() {
		if err := o.print(done); err != nil {
			return err
		}
	}
	p.Stop()
	return ReportOutcome(o.CLI, done)
}

// Wait follows a call until it finishes. It cancels the call when the user interrupts the program or nobody reads
// the output any more.
func Wait(c *cli.Cluster, call *v1alpha1.ToolCall, shown *display, i *Interrupts) (*v1alpha1.ToolCall, error) {
	key := client.ObjectKeyFromObject(call)
	i.onInterrupt(func(ctx context.Context, why string) {
		fmt.Fprintf(c.ErrOut, "%s: cancelling call %s; press Ctrl-C again to stop following it\n", why, key.Name)
		if _, err := c.Follow().Cancel(ctx, key, call.UID); err != nil {
			fmt.Fprintf(c.ErrOut, "warning: %s\n", terminal.Safe(err.Error()))
		}
	})
	shown.readerLost = i.readerLost
	return shown.follow(i.Waiting, c, key, fmt.Errorf("stopped following call %s before it finished: to wait for it, run kubectl toolcall wait %s -n %s", key.Name, key.Name, key.Namespace))
}

// ReportOutcome returns the exit code of the call as an error, and prints why a call ended whose command did not
// exit by itself, or to whose command a program or a host was refused.
func ReportOutcome(c *cli.CLI, call *v1alpha1.ToolCall) error {
	code := cli.ExitCode(call)
	status := &call.Status
	switch {
	case code == 0:
		return nil
	case status.Reason == v1alpha1.ReasonNonZeroExit && !wasRefused(status):
		return &cli.ExitError{Code: code}
	}
	fmt.Fprintf(c.ErrOut, "call %s: %s (%s): %s\n", call.Name, status.Phase, status.Reason, terminal.Safe(status.Message))
	switch {
	case status.Phase == v1alpha1.PhaseDenied:
		fmt.Fprintf(c.ErrOut, "To see what the policy allows, run: kubectl toolcall explain-denial %s -n %s\n", call.Name, call.Namespace)
	case status.RetrySafe != nil && *status.RetrySafe:
		fmt.Fprintln(c.ErrOut, "The command never started, so it is safe to run it again.")
	}
	if status.Phase == v1alpha1.PhaseFailed && status.Reason != v1alpha1.ReasonNonZeroExit {
		fmt.Fprintln(c.ErrOut, "For what to do, see", terminal.SafeLine(aboutFailure(status)))
	}
	return &cli.ExitError{Code: code}
}

// joinSession makes a call one of the session that it names, and of no session of the same name that is made later. It
// refuses a session that takes no calls any more, so that nothing is created for it, and another one than that of a call that is run again.
func (o *RunOptions) joinSession(ctx context.Context, c *cli.Cluster, call *v1alpha1.ToolCall) error {
	ref := call.Spec.SessionRef
	if ref == nil {
		return nil
	}
	session, err := c.GetSession(ctx, ref.Name)
	if err != nil {
		return err
	}
	if ref.UID != "" && ref.UID != string(session.UID) {
		return fmt.Errorf("the session that call %s ran in is gone, and session %s is another one, with other files: to run the call there all the same, use kubectl toolcall run --session %s", o.origin, ref.Name, ref.Name)
	}
	if err := TakesCalls(session); err != nil {
		return err
	}
	if session.Spec.Suspend {
		c.Note(o.quiet, "session %s is suspended: the call waits until you run kubectl toolcall session resume %s -n %s", session.Name, session.Name, session.Namespace)
	}
	*ref = *ReferenceTo(session)
	return nil
}

// ReferenceTo refers to this very session.
func ReferenceTo(session *v1alpha1.ToolSession) *v1alpha1.SessionReference {
	return &v1alpha1.SessionReference{Name: session.Name, UID: string(session.UID)}
}

// TakesCalls says why a session takes no calls any more.
func TakesCalls(session *v1alpha1.ToolSession) error {
	const hint = "start another one with kubectl toolcall session start, and run the call there"
	switch {
	case session.TakesCalls():
		return nil
	case session.Status.Phase == v1alpha1.SessionEnded:
		return fmt.Errorf("session %s has ended (%s): %s", session.Name, EndOf(session), hint)
	default:
		return fmt.Errorf("session %s is being ended: %s", session.Name, hint)
	}
}

// EndOf is why a session ended: the reason, and the message if there is one.
func EndOf(session *v1alpha1.ToolSession) string {
	if session.Status.Message == "" {
		return session.Status.Reason
	}
	return session.Status.Reason + ": " + session.Status.Message
}
