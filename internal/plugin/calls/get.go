package calls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
)

const getLong = `List calls, newest first, with their action, outcome and duration. -o wide adds the requester, the session, the pod and the
node.

The API server selects the calls and makes the table. --limit shows the newest calls of those that are selected. The API server
lists calls by name, so --since and --limit read all that the other flags select before they leave calls out: to read less, use -l,
--phase, --session or --requested-by.

To follow changes, use kubectl get toolcalls --watch.

The exit code is 0, also if no call is selected, and 1 on errors, such as a name that doesn't exist.`

const getExample = `  kubectl toolcall get
  kubectl toolcall get -A --phase Failed,Denied --since 1h
  kubectl toolcall get --limit 20 -o wide
  kubectl toolcall get --requested-by system:serviceaccount:agents:agent
  kubectl toolcall get -l team=search -o name
  kubectl toolcall get --session dev --phase Running
  kubectl toolcall get nightly -o jsonpath='{.status.exitCode}'`

// getOptions are the flags of get.
type getOptions struct {
	callFilter
	allNamespaces bool
	limit         int
	formats       *cli.Formats
}

func newGet(c *cli.CLI) *cobra.Command {
	o := &getOptions{formats: cli.NewFormats("wide")}
	command := &cobra.Command{
		Use:               "get [NAME...]",
		Aliases:           []string{"list", "ls"},
		Short:             "List calls, newest first",
		Long:              getLong,
		Example:           getExample,
		Args:              o.validate,
		ValidArgsFunction: c.CompleteArguments(-1, cli.ListCalls),
		RunE:              c.Connected(o.run),
	}
	flags := command.Flags()
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "list the calls of all namespaces")
	o.callFilter.add(command, c)
	flags.IntVar(&o.limit, "limit", 0, "list at most so many calls, the newest (default: all)")
	o.formats.Add(command)
	c.AddRawFlag(command)
	return command
}

func (o *getOptions) validate(command *cobra.Command, names []string) error {
	switch {
	case len(names) > 0 && (o.allNamespaces || o.isSet()):
		return errors.New("names can't be used together with --all-namespaces or flags that select calls: use one or the other")
	case o.limit < 0 || o.limit == 0 && command.Flags().Changed("limit"):
		return fmt.Errorf("--limit %d: must be at least 1; without --limit, all calls are listed", o.limit)
	default:
		return o.callFilter.validate()
	}
}

func (o *getOptions) run(ctx context.Context, c *cli.Cluster, names []string) error {
	if err := o.formats.Validate(); err != nil {
		return err
	}
	namespace, where := c.Scope(o.allNamespaces)
	q := callQuery{namespace: namespace, options: o.listOptions(), whole: o.formats.Format() != ""}
	table, err := o.read(ctx, c, q, names)
	switch {
	case err != nil:
		return err
	case o.formats.IsObject():
		return o.printObjects(c.Out, table, len(names) == 1)
	case len(table.Rows) == 0:
		fmt.Fprintln(c.ErrOut, "No calls found"+where)
	}
	return o.printTable(c.Out, table)
}

// read reads the named calls, in their order, or the selected ones: newest first.
func (o *getOptions) read(ctx context.Context, c *cli.Cluster, q callQuery, names []string) (*metav1.Table, error) {
	all := &metav1.Table{}
	for _, name := range names {
		q.name = name
		table, err := callTable(ctx, c, q)
		if err != nil {
			return nil, err
		}
		appendTable(all, table)
	}
	if len(names) > 0 {
		return all, nil
	}
	all, err := callTable(ctx, c, q)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all.Rows, func(a, b metav1.TableRow) int {
		return rowCall(&b).CreationTimestamp.Compare(rowCall(&a).CreationTimestamp.Time)
	})
	o.keepRecent(all)
	if o.limit > 0 && len(all.Rows) > o.limit {
		all.Rows = all.Rows[:o.limit]
	}
	return all, nil
}

func (o *getOptions) printTable(out io.Writer, table *metav1.Table) error {
	wide := o.formats.Format() == "wide"
	if wide {
		addSessionColumn(table)
	}
	tidyRows(table)
	aligned := printers.GetNewTabWriter(out)
	if err := printers.NewTablePrinter(printers.PrintOptions{WithNamespace: o.allNamespaces, Wide: wide}).PrintObj(table, aligned); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return aligned.Flush()
}

// printObjects prints the calls of a table as one list, or the only one by itself.
func (o *getOptions) printObjects(out io.Writer, table *metav1.Table, isOne bool) error {
	if isOne {
		return o.formats.Print(out, rowCall(&table.Rows[0]))
	}
	list := &v1alpha1.ToolCallList{ListMeta: table.ListMeta}
	for i := range table.Rows {
		list.Items = append(list.Items, *rowCall(&table.Rows[i]))
	}
	return o.formats.Print(out, list)
}

// PhaseOf returns Pending for a call that the operator has not seen yet.
func PhaseOf(call *v1alpha1.ToolCall) string {
	return string(cmp.Or(call.Status.Phase, v1alpha1.PhasePending))
}
