package calls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
)

const getLong = `List calls, newest first, with their action, outcome and duration. -o wide adds the requester, the session, when the process
started, its CPU time in milliseconds and its memory in bytes, the pod and the node.

The API server selects the calls and makes the table. --limit shows the newest calls of those that are selected. The API server
lists calls by name, so --since and --limit read all that the other flags select before they leave calls out: to read less, use -l,
--phase, --session or --requested-by.

--watch goes on with a line for each call that is created or changes, until Ctrl-C. A call that no longer is in one of the
phases of --phase gets no line. --limit bounds only the list that --watch begins with.

The exit code is 0, also if no call is selected, and 1 on errors, such as a name that doesn't exist.`

const getExample = `  kubectl toolcall get
  kubectl toolcall get -A --phase Failed,Denied --since 1h
  kubectl toolcall get --limit 20 -o wide
  kubectl toolcall get --requested-by system:serviceaccount:agents:agent
  kubectl toolcall get -l team=search -o name
  kubectl toolcall get --session dev --phase Running
  kubectl toolcall get --watch
  kubectl toolcall get nightly -o jsonpath='{.status.exitCode}'`

// getOptions are the flags of get.
type getOptions struct {
	callFilter
	allNamespaces bool
	watch         bool
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
	flags.BoolVarP(&o.watch, "watch", "w", false, "go on with calls that are created or change")
	flags.IntVar(&o.limit, "limit", 0, "list at most so many calls, the newest (default: all)")
	o.formats.Add(command)
	c.AddRawFlag(command)
	return command
}

func (o *getOptions) validate(command *cobra.Command, names []string) error {
	switch {
	case slices.Contains(names, ""):
		return errors.New("a name is empty: name a call, or leave names out to list all")
	case o.allNamespaces && len(names) > 0:
		return errors.New("names and --all-namespaces can't be used together: select one namespace with -n")
	case o.limit < 0 || o.limit == 0 && command.Flags().Changed("limit"):
		return fmt.Errorf("--limit %d: must be at least 1; without --limit, all calls are listed", o.limit)
	case o.watch && len(names) > 1:
		return errors.New("--watch can be used with one name, or with flags that select calls, not with several names")
	default:
		return nil
	}
}

func (o *getOptions) run(ctx context.Context, c *cli.Cluster, names []string) error {
	namespace, where := c.Scope(o.allNamespaces)
	q := callQuery{namespace: namespace, options: o.listOptions(), whole: o.formats.IsObject()}
	table, failed := o.read(ctx, c, q, names)
	if failed != nil && len(table.Rows) == 0 {
		return failed
	}
	version, show := table.ResourceVersion, o.tablePrinter(c.Out)
	switch {
	case o.formats.IsObject():
		show = func(table *metav1.Table) error { return o.printObjects(c.Out, table, o.watch || len(names) == 1) }
	case len(table.Rows) == 0:
		fmt.Fprintln(c.ErrOut, "No calls found"+where)
	}
	if err := show(table); err != nil || !o.watch {
		return errors.Join(failed, err)
	}
	if len(names) == 1 {
		q = named(q, names[0])
	}
	return watchCalls(ctx, c, q, version, func(changed *metav1.Table) error {
		o.keepRecent(changed)
		return show(changed)
	})
}

// named returns a query for one call that the flags select too.
func named(q callQuery, name string) callQuery {
	selected := fields.ParseSelectorOrDie(q.options.FieldSelector)
	q.options.FieldSelector = fields.AndSelectors(fields.OneTermEqualSelector(fieldName, name), selected).String()
	return q
}

// read reads the selected calls: newest first, and with names in their order, unless only the newest of them are shown. With an error, it
// returns those that were read. A call that isn't there doesn't keep the next from being read: another error would be theirs too.
func (o *getOptions) read(ctx context.Context, c *cli.Cluster, q callQuery, names []string) (*metav1.Table, error) {
	if len(names) == 0 {
		names = []string{""}
	}
	all, failed := &metav1.Table{}, []error{}
	for _, name := range names {
		one := q
		// A watch goes on from the list's version: the API server may have forgotten what happened since the call changed.
		if one.name = name; name != "" && (o.isSet() || o.watch) {
			one = named(q, name)
		}
		table, err := callTable(ctx, c, one)
		if err == nil && name != "" && len(table.Rows) == 0 {
			// The flags leave it out, or there is no such call.
			_, err = callTable(ctx, c, callQuery{namespace: q.namespace, name: name})
		}
		if err == nil {
			appendTable(all, table)
			continue
		}
		failed = append(failed, err)
		if !cli.IsMissing(err) {
			break
		}
	}
	if names[0] == "" || o.limit > 0 {
		sortNewestFirst(all.Rows)
	}
	o.keepRecent(all)
	if o.limit > 0 && len(all.Rows) > o.limit {
		all.Rows = all.Rows[:o.limit]
	}
	return all, errors.Join(failed...)
}

// tablePrinter returns a function that prints tables below each other.
func (o *getOptions) tablePrinter(to io.Writer) func(*metav1.Table) error {
	wide := o.formats.Format() == "wide"
	printer := printers.NewTablePrinter(printers.PrintOptions{WithNamespace: o.allNamespaces, Wide: wide})
	out := printers.GetNewTabWriter(to)
	var columns []metav1.TableColumnDefinition
	return func(table *metav1.Table) error {
		// The API server says the columns once for each watch.
		if table.ColumnDefinitions != nil {
			columns = table.ColumnDefinitions
		}
		table.ColumnDefinitions = columns
		tidyRows(table)
		if err := printer.PrintObj(table, out); err != nil {
			return fmt.Errorf("print the table: %w", err)
		}
		return out.Flush()
	}
}

// printObjects prints the calls of a table as one list, or each by itself.
func (o *getOptions) printObjects(out io.Writer, table *metav1.Table, each bool) error {
	list := &v1alpha1.ToolCallList{ListMeta: table.ListMeta, Items: []v1alpha1.ToolCall{}}
	for i := range table.Rows {
		call := rowCall(&table.Rows[i])
		if !each {
			list.Items = append(list.Items, *call)
		} else if err := o.formats.Print(out, call); err != nil {
			return err
		}
	}
	if each {
		return nil
	}
	return o.formats.Print(out, list)
}

// PhaseOf returns Pending for a call that the operator has not seen yet.
func PhaseOf(call *v1alpha1.ToolCall) string {
	return string(cmp.Or(call.Status.Phase, v1alpha1.PhasePending))
}

// watchPause is how long to wait before a watch is begun again.
const watchPause = time.Second

// watchCalls passes on each call that is added or changed after a resource version, until show fails or the context ends. A watch
// that ends is begun again where it was, or anew where the API server forgot what happened. A note says why nothing comes, once in
// each interruption.
func watchCalls(ctx context.Context, c *cli.Cluster, q callQuery, from string, show func(*metav1.Table) error) error {
	q.options.Watch, q.options.AllowWatchBookmarks = true, true
	isNoted := false
	for {
		q.options.ResourceVersion = from
		watching, err := request(c, &q).Watch(ctx)
		hasBegun := err == nil
		if hasBegun {
			isNoted = false
			from, err = passEvents(watching, from, show)
			watching.Stop()
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsGone(err) || apierrors.IsResourceExpired(err):
			c.Note(false, "note: the watch was too far behind and begins again: changes may be missing")
			from = ""
			continue
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			return c.Explain("watch", "toolcalls", "calls", err)
		case err != nil && hasBegun:
			return err
		case err != nil && !isNoted:
			c.Note(false, "note: the watch failed, retrying: %s", err)
			isNoted = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(watchPause):
		}
	}
}

// passEvents passes the events of one watch on, and returns the last resource version.
func passEvents(watching watch.Interface, from string, show func(*metav1.Table) error) (string, error) {
	for event := range watching.ResultChan() {
		if event.Type == watch.Error {
			if err := apierrors.FromObject(event.Object); apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
				return from, err
			}
			return from, nil // The next watch says whether it lasts.
		}
		table, ok := event.Object.(*metav1.Table)
		if !ok {
			continue
		}
		if err := decodeRows(table); err != nil {
			return from, fmt.Errorf("watch calls: %w", err)
		}
		from = cmp.Or(table.ResourceVersion, from)
		if event.Type != watch.Added && event.Type != watch.Modified {
			continue
		}
		if err := show(table); err != nil {
			return from, err
		}
	}
	return from, nil
}
