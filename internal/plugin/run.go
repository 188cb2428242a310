package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
)

const runLong = `Run one tool call, show its output while it runs, and exit as it did.

The command's standard output goes to standard output and its standard error to standard error. Ctrl-C cancels the
call; a second Ctrl-C leaves it to itself.

` + liveHelp + `

` + exitCodesHelp

const runExample = `  # A program with arguments, in the namespace's default environment
  kubectl toolcall run -- git status

  # A shell line in a certain environment, with a variable, for at most a minute
  kubectl toolcall run --env repo -e CI=true --timeout 1m --shell 'make test | tail -n 20'

  # A snippet from a file, and one from standard input
  kubectl toolcall run --code python -f script.py
  echo 'print(6 * 7)' | kubectl toolcall run --code python -f -

  # Feed standard input
  kubectl toolcall run --stdin -- wc -l < access.log

  # Start it, come back later
  kubectl toolcall run --detach --name nightly --shell ./nightly.sh
  kubectl toolcall logs -f nightly

  # See the object without creating it
  kubectl toolcall run --dry-run -o yaml -- git status`

// runOptions are the flags of run.
type runOptions struct {
	*session
	call   callFlags
	output outputFlags
	print  *genericclioptions.PrintFlags
	detach bool
	quiet  bool
	dryRun string
}

func newRun(s *session) *cobra.Command {
	o := &runOptions{session: s, print: genericclioptions.NewPrintFlags("created").WithTypeSetter(scheme())}
	command := &cobra.Command{
		Use:         "run [flags] -- PROGRAM [ARGUMENT...]",
		Short:       "Run a tool call and exit as it did",
		Long:        runLong,
		Example:     runExample,
		Annotations: map[string]string{annotationCode: "yes"},
		RunE: func(command *cobra.Command, args []string) error {
			return o.run(command.Context(), args)
		},
	}
	o.call.add(command, s)
	o.output.add(command)
	flags := command.Flags()
	flags.BoolVar(&o.detach, "detach", false, "print the call's name and don't wait")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "say nothing about the call's progress")
	flags.StringVar(&o.dryRun, "dry-run", "none", `"client" prints the call, "server" has the API server check it too; nothing is created`)
	flags.Lookup("dry-run").NoOptDefVal = "client"
	o.print.AddFlags(command)
	must(command.RegisterFlagCompletionFunc("dry-run", completeFrom("none", "client", "server")))
	return command
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
	if o.dryRun != "none" {
		return o.pretend(ctx, c, call)
	}
	stop, release := catchInterrupts(ctx)
	defer release()
	created, err := c.follow().Create(stop.creating, call)
	if err != nil {
		return err
	}
	if o.detach {
		return o.printDetached(created)
	}
	return o.follow(c, created, stop)
}

func (o *runOptions) validate() error {
	switch o.dryRun {
	case "none", "client", "server":
	default:
		return fmt.Errorf("--dry-run=%s: say client or server", o.dryRun)
	}
	if o.detach && o.dryRun != "none" {
		return errors.New("--detach and --dry-run don't go together: nothing is created to come back to")
	}
	return o.output.validate()
}

// pretend prints the call instead of creating it.
func (o *runOptions) pretend(ctx context.Context, c *cluster, call *v1alpha1.ToolCall) error {
	if o.dryRun == "server" {
		if err := dryRun(ctx, c, call); err != nil {
			return err
		}
	}
	if *o.print.OutputFormat == "" {
		*o.print.OutputFormat = "yaml"
	}
	return o.object(call)
}

// dryRun has the API server check and admit the call, without keeping it.
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

// dryRunClient keeps nothing that it creates.
type dryRunClient struct{ client.WithWatch }

func (c dryRunClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return c.WithWatch.Create(ctx, o, append(opts, client.DryRunAll)...)
}

func (o *runOptions) printDetached(call *v1alpha1.ToolCall) error {
	if *o.print.OutputFormat != "" {
		return o.object(call)
	}
	_, err := fmt.Fprintln(o.Out, call.Name)
	return err
}

func (o *runOptions) object(call *v1alpha1.ToolCall) error {
	printer, err := o.print.ToPrinter()
	if err != nil {
		return err
	}
	return printer.PrintObj(call, o.Out)
}

// follow shows the call until its end; with -o it prints the finished object instead of the output.
func (o *runOptions) follow(c *cluster, call *v1alpha1.ToolCall, stop *interrupts) error {
	shown := o.output.show(o.session)
	if *o.print.OutputFormat != "" {
		shown = nothingShown(o.session)
	}
	p := newProgress(o.ErrOut, o.quiet)
	defer p.end()
	shown.changed = p.changed
	done, err := o.wait(c, call, shown, stop)
	if err != nil {
		return err
	}
	if *o.print.OutputFormat != "" {
		if err := o.object(done); err != nil {
			return err
		}
	}
	p.end()
	return outcome(o.session, done)
}

// wait follows a call to its end, cancelling it when the user or a lost reader asks for that.
func (s *session) wait(c *cluster, call *v1alpha1.ToolCall, shown *shown, stop *interrupts) (*v1alpha1.ToolCall, error) {
	key := client.ObjectKeyFromObject(call)
	stop.cancels(func(ctx context.Context, why string) {
		fmt.Fprintf(s.ErrOut, "%s: cancelling call %s; press Ctrl-C again to leave it\n", why, key.Name)
		if err := c.follow().Cancel(ctx, key); err != nil {
			fmt.Fprintf(s.ErrOut, "warning: %v\n", err)
		}
	})
	shown.lost = stop.lost
	done, err := c.follow().Wait(stop.waiting, key, shown.watcher())
	switch {
	case shown.broken():
		return nil, &exitError{code: codePipe}
	case stop.left():
		return nil, &exitError{code: codeCancelled, err: fmt.Errorf("left call %s before its end: kubectl toolcall wait %s -n %s", key.Name, key.Name, key.Namespace)}
	case err != nil:
		return nil, &exitError{code: codeFailed, err: fmt.Errorf("follow call %s: %w", key.Name, err)}
	}
	return done, nil
}

// outcome says why a call did not end by itself, and gives its exit code as an error.
func outcome(s *session, call *v1alpha1.ToolCall) error {
	code := exitCode(call)
	status := &call.Status
	switch {
	case code == 0:
		return nil
	case status.Reason == v1alpha1.ReasonNonZeroExit:
		return &exitError{code: code}
	}
	fmt.Fprintf(s.ErrOut, "call %s: %s (%s): %s\n", call.Name, status.Phase, status.Reason, visible(status.Message))
	switch {
	case status.Phase == v1alpha1.PhaseDenied:
		fmt.Fprintf(s.ErrOut, "what would pass: kubectl toolcall explain-denial %s -n %s\n", call.Name, call.Namespace)
	case status.RetrySafe != nil && *status.RetrySafe:
		fmt.Fprintln(s.ErrOut, "The command never started: running it again repeats nothing.")
	}
	return &exitError{code: code}
}
