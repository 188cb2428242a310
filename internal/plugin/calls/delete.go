package calls

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const deleteLong = `Delete calls, with their output and artifacts. The command of a call that runs is stopped.

Finished calls are deleted automatically some time after their end: see --ttl of run. To stop a call and keep its output,
use cancel. --finished leaves out calls that haven't finished.

The exit code is 0 if all calls were deleted, also if -l or --all select none, and 1 otherwise.`

const deleteExample = `  kubectl toolcall delete nightly
  kubectl toolcall delete -l team=search
  kubectl toolcall delete --all --finished`

// deleteOptions are the flags of delete.
type deleteOptions struct {
	callTargets
	finished bool
	// format is empty or name: the calls are gone then.
	format string
}

func newDelete(c *cli.CLI) *cobra.Command {
	o := &deleteOptions{}
	command := &cobra.Command{
		Use:               "delete (NAME... | -l SELECTOR | --all)",
		Aliases:           []string{"rm"},
		Short:             "Delete calls, with their output",
		Long:              deleteLong,
		Example:           deleteExample,
		ValidArgsFunction: c.CompleteArguments(-1, cli.ListCalls),
		RunE:              c.Connected(o.run),
	}
	o.callTargets.add(command)
	command.Flags().BoolVar(&o.finished, "finished", false, "with -l or --all: leave out calls that haven't finished")
	command.Flags().StringVarP(&o.format, "output", "o", "", "output format: name prints only the names of the objects")
	cli.Must(command.RegisterFlagCompletionFunc("output", cli.CompleteFrom("name")))
	cli.CheckBefore(command, o.validate)
	return command
}

func (o *deleteOptions) validate([]string) error {
	if o.finished && !o.isSelection() {
		return errors.New("--finished is for -l and --all: leave it out for calls that you name")
	}
	if o.format != "" && o.format != "name" {
		return fmt.Errorf("--output %q: must be name; to see an object, use get or describe before", o.format)
	}
	return nil
}

func (o *deleteOptions) run(ctx context.Context, c *cli.Cluster, args []string) error {
	var inPhases []string
	if o.finished {
		inPhases = finished
	}
	calls, err := o.resolve(ctx, c, args, inPhases...)
	if err != nil {
		return err
	}
	if len(calls) == 0 {
		fmt.Fprintf(c.ErrOut, "No calls to delete in namespace %s.\n", c.Namespace)
		return nil
	}
	said := "%s: deleted\n"
	if o.format == "name" {
		said = "toolcall.toolcall.dev/%s\n"
	}
	var failed []error
	for i := range calls {
		call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: calls[i].Name}}
		var options []client.DeleteOption
		if uid := calls[i].UID; uid != "" {
			options = append(options, client.Preconditions{UID: &uid})
		}
		err := c.Client.Delete(ctx, call, options...)
		switch {
		case o.isSelection() && (apierrors.IsNotFound(err) || apierrors.IsConflict(err)):
			// Somebody else was faster, and may have made another call of that name.
		case err != nil:
			failed = append(failed, c.Explain("delete", "toolcalls", "call "+call.Name, err))
		default:
			fmt.Fprintf(c.Out, said, terminal.SafeLine(call.Name))
		}
	}
	return errors.Join(failed...)
}
