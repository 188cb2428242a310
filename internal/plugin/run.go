package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const runLong = `Run one tool call, show its output while it runs, and exit with its exit code.

The command's standard output goes to standard output, its standard error to standard error. The name of the call goes to
standard error once it is created, unless --quiet is set. Ctrl-C cancels the call. A second Ctrl-C stops following it.

With --session, the call runs in a session: see "kubectl toolcall session". With --background too, the command waits until
the call runs, prints its name and leaves it running: to stop it, use cancel. A call that ends before that is shown like
any other.

` + liveHelp + `

` + exitCodesHelp

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

// runOptions are the flags of run.
type runOptions struct {
	*cli
	call   callFlags
	output outputFlags
	print  *genericclioptions.PrintFlags
	detach bool
	quiet  bool
	dryRun string
	// origin is the call that is run again, empty for none.
	origin string
}

func newRun(c *cli) *cobra.Command {
	o := &runOptions{cli: c, print: genericclioptions.NewPrintFlags("created").WithTypeSetter(scheme())}
	command := &cobra.Command{
		Use:         "run [flags] -- PROGRAM [ARGUMENT...]",
		Short:       "Run a tool call and exit with its exit code",
		Long:        runLong,
		Example:     runExample,
		Annotations: map[string]string{annotationCode: "yes"},
		RunE: func(command *cobra.Command, args []string) error {
			return o.run(command.Context(), args)
		},
	}
	o.call.add(command, c)
	o.addFlags(command)
	return command
}

// addFlags adds the flags that don't describe the call.
func (o *runOptions) addFlags(command *cobra.Command) {
	o.output.add(command)
	o.addRawFlag(command)
	flags := command.Flags()
	flags.BoolVar(&o.detach, "detach", false, "print the name of the call and don't wait for it")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print no progress messages")
	flags.StringVar(&o.dryRun, "dry-run", "none", `"client" prints the call, "server" also lets the API server validate it; neither creates it`)
	flags.Lookup("dry-run").NoOptDefVal = "client"
	addPrintFlags(command, o.print)
	must(command.RegisterFlagCompletionFunc("dry-run", completeFrom("none", "client", "server")))
}

func (o *runOptions) run(ctx context.Context, args []string) error {
	if err := o.validate(); err != nil {
		return err
	}
	call, err := o.call.build(args, o.In)
	if err != nil {
		return err
	}
	c, err := o.connect()
	if err != nil {
		return err
	}
	call.Namespace = c.namespace
	return o.submit(ctx, c, call)
}

// submit creates the call and follows it, or prints it where the flags say so.
func (o *runOptions) submit(ctx context.Context, c *cluster, call *v1alpha1.ToolCall) error {
	if o.dryRun != "client" {
		if err := o.joinSession(ctx, c, call, o.quiet); err != nil {
			return err
		}
	}
	if o.dryRun != "none" {
		return o.printDryRun(ctx, c, call)
	}
	interrupts, release := catchInterrupts(ctx)
	defer release()
	created, err := c.follow().Create(interrupts.creating, call)
	if err != nil {
		return err
	}
	if o.detach {
		return o.printDetached(created)
	}
	return o.follow(c, created, interrupts)
}

func (o *runOptions) validate() error {
	switch o.dryRun {
	case "none", "client", "server":
	default:
		return fmt.Errorf("--dry-run=%s: must be client, server or none", o.dryRun)
	}
	if o.detach && o.dryRun != "none" {
		return errors.New("--detach and --dry-run can't be used together: a dry run creates no call")
	}
	return o.output.validate()
}

// printDryRun prints the call instead of creating it.
func (o *runOptions) printDryRun(ctx context.Context, c *cluster, call *v1alpha1.ToolCall) error {
	if o.dryRun == "server" {
		if err := dryRun(ctx, c, call); err != nil {
			return err
		}
	}
	if *o.print.OutputFormat == "" {
		*o.print.OutputFormat = "yaml"
	}
	return o.printObject(call)
}

// dryRun lets the API server validate and admit the call without storing it.
func dryRun(ctx context.Context, c *cluster, call *v1alpha1.ToolCall) error {
	clients := follow.Clients{Calls: dryRunClient{c.client}}
	admitted, err := clients.Create(ctx, call)
	if err != nil {
		return err
	}
	admitted.DeepCopyInto(call)
	call.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolCall"))
	return nil
}

// dryRunClient creates objects with dryRun=All.
type dryRunClient struct{ client.WithWatch }

func (c dryRunClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return c.WithWatch.Create(ctx, o, append(opts, client.DryRunAll)...)
}

func (o *runOptions) noteCreated(call *v1alpha1.ToolCall) {
	if o.origin != "" {
		o.note(o.quiet, "call %s created, a rerun of %s", call.Name, o.origin)
		return
	}
	o.note(o.quiet, "call %s created", call.Name)
}

func (o *runOptions) printDetached(call *v1alpha1.ToolCall) error {
	if o.origin != "" {
		o.noteCreated(call)
	}
	if *o.print.OutputFormat != "" {
		return o.printObject(call)
	}
	_, err := fmt.Fprintln(o.Out, call.Name)
	return err
}

func (o *runOptions) printObject(call *v1alpha1.ToolCall) error {
	printer, err := o.print.ToPrinter()
	if err != nil {
		return err
	}
	return printer.PrintObj(call, o.Out)
}

// follow shows the call until it finishes, and a background call until it runs. With -o it prints the object instead of
// the output.
func (o *runOptions) follow(c *cluster, call *v1alpha1.ToolCall, i *interrupts) error {
	// The name comes first: it is what is needed to look for a call whose follower was ended.
	o.noteCreated(call)
	shown := o.output.display(o.cli)
	if *o.print.OutputFormat != "" {
		shown = noDisplay(o.cli)
	}
	p := newProgress(o.ErrOut, o.quiet, delayOf(call))
	defer p.stop()
	shown.changed = p.update
	if call.Spec.Background {
		shown.until = isRunning
	}
	done, err := o.wait(c, call, shown, i)
	if err != nil {
		return err
	}
	if *o.print.OutputFormat != "" {
		if err := o.printObject(done); err != nil {
			return err
		}
	}
	p.stop()
	if !follow.Finished(done) {
		return o.reportBackground(done)
	}
	return o.reportOutcome(done)
}

// reportBackground names a call that goes on running.
func (o *runOptions) reportBackground(call *v1alpha1.ToolCall) error {
	if !o.quiet {
		fmt.Fprintf(o.ErrOut, "call %s runs in the background of session %s: to stop it, run kubectl toolcall cancel %s -n %s\n", call.Name, call.Spec.SessionRef.Name, call.Name, call.Namespace)
	}
	if *o.print.OutputFormat != "" {
		return nil
	}
	_, err := fmt.Fprintln(o.Out, call.Name)
	return err
}

func isRunning(call *v1alpha1.ToolCall) bool { return call.Status.Phase == v1alpha1.PhaseRunning }

// delayOf is how long a call may take to start before progress messages appear.
func delayOf(call *v1alpha1.ToolCall) time.Duration {
	if follow.InSession(call) {
		return sessionCallDelay
	}
	return progressDelay
}

// wait follows a call until it finishes. It cancels the call when the user interrupts the program or nobody reads
// the output any more.
func (c *cli) wait(cluster *cluster, call *v1alpha1.ToolCall, shown *display, i *interrupts) (*v1alpha1.ToolCall, error) {
	key := client.ObjectKeyFromObject(call)
	i.onInterrupt(func(ctx context.Context, why string) {
		fmt.Fprintf(c.ErrOut, "%s: cancelling call %s; press Ctrl-C again to stop following it\n", why, key.Name)
		if _, err := cluster.follow().Cancel(ctx, key); err != nil {
			fmt.Fprintf(c.ErrOut, "warning: %s\n", terminal.Safe(err.Error()))
		}
	})
	shown.readerLost = i.readerLost
	done, err := cluster.follow().Wait(i.waiting, key, shown.watcher())
	c.flush()
	if apierrors.IsNotFound(err) {
		err = follow.ErrDeleted // The call existed: it was deleted before the first read.
	}
	switch {
	case shown.hasFailed():
		return nil, &exitError{code: codePipe}
	case i.hasLeft():
		return nil, &exitError{code: codeCancelled, err: fmt.Errorf("stopped following call %s before it finished: to wait for it, run kubectl toolcall wait %s -n %s", key.Name, key.Name, key.Namespace)}
	case err != nil:
		return nil, &exitError{code: codeFailed, err: fmt.Errorf("follow call %s: %w", key.Name, err)}
	}
	return done, nil
}

// reportOutcome returns the exit code of the call as an error, and prints why a call ended whose command did not
// exit by itself, or to whose command a program or a host was refused.
func (c *cli) reportOutcome(call *v1alpha1.ToolCall) error {
	code := exitCode(call)
	status := &call.Status
	switch {
	case code == 0:
		return nil
	case status.Reason == v1alpha1.ReasonNonZeroExit && !wasRefused(status):
		return &exitError{code: code}
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
	return &exitError{code: code}
}
