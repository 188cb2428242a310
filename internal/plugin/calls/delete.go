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
	*cli.CLI
	callTargets
	finished bool
	formats  cli.NamesOnly
}

func newDelete(c *cli.CLI) *cobra.Command {
	o := &deleteOptions{CLI: c}
	command := &cobra.Command{
		Use:               "delete (NAME... | -l SELECTOR | --all)",
		Aliases:           []string{"rm"},
		Short:             "Delete calls, with their output",
		Long:              deleteLong,
		Example:           deleteExample,
		Args:              o.args,
		ValidArgsFunction: c.CompleteArguments(-1, cli.ListCalls),
		RunE: func(command *cobra.Command, args []string) error {
			return o.run(command.Context(), args)
		},
	}
	o.callTargets.add(command)
	command.Flags().BoolVar(&o.finished, "finished", false, "with -l or --all: leave out calls that haven't finished")
	o.formats.Add(command)
	return command
}

func (o *deleteOptions) run(ctx context.Context, args []string) error {
	if o.finished && !o.isSelection() {
		return errors.New("--finished is for -l and --all: leave it out for calls that you name")
	}
	if err := o.formats.Validate(); err != nil {
		return err
	}
	cluster, err := o.Connect()
	if err != nil {
		return err
	}
	var inPhases []string
	if o.finished {
		for _, phase := range v1alpha1.TerminalPhases() {
			inPhases = append(inPhases, string(phase))
		}
	}
	var calls []metav1.ObjectMeta
	for _, name := range args {
		calls = append(calls, metav1.ObjectMeta{Name: name})
	}
	if o.isSelection() {
		if calls, err = o.selected(ctx, cluster, inPhases...); err != nil {
			return err
		}
	}
	if len(calls) == 0 {
		fmt.Fprintf(o.ErrOut, "No calls to delete in namespace %s.\n", cluster.Namespace)
		return nil
	}
	var failed []error
	for i := range calls {
		call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: calls[i].Name}}
		var options []client.DeleteOption
		if uid := calls[i].UID; uid != "" {
			options = append(options, client.Preconditions{UID: &uid})
		}
		err := cluster.Client.Delete(ctx, call, options...)
		if o.isSelection() && (apierrors.IsNotFound(err) || apierrors.IsConflict(err)) {
			continue // Somebody else was faster, and may have made another call of that name.
		}
		if err != nil {
			failed = append(failed, deleteError(cluster, call.Name, err))
			continue
		}
		o.formats.Report(o.Out, call.Name)
	}
	return errors.Join(failed...)
}

func deleteError(c *cli.Cluster, name string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("delete call %s: you need permission to delete toolcalls in this namespace: the ClusterRole toolcall-user grants it: %w", name, err)
	}
	return c.ReadError("call "+name, err)
}
