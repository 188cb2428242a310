package calls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
)

const getLong = `List calls, newest first, with their action, outcome and duration. -o wide adds the requester, the session, the pod and the
node.

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
	*cli.CLI
	callFilter
	allNamespaces bool
	watch         bool
	limit         int
	formats       cli.Formats
	now           func() time.Time
	changed       func(flag string) bool
}

func newGet(c *cli.CLI) *cobra.Command {
	o := &getOptions{CLI: c, formats: cli.NewFormats("wide"), now: time.Now}
	command := &cobra.Command{
		Use:               "get [NAME...]",
		Aliases:           []string{"list", "ls"},
		Short:             "List calls, newest first",
		Long:              getLong,
		Example:           getExample,
		ValidArgsFunction: c.CompleteArguments(-1, cli.ListCalls),
		RunE: func(command *cobra.Command, args []string) error {
			return o.run(command.Context(), args)
		},
	}
	flags := command.Flags()
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "list the calls of all namespaces")
	o.callFilter.add(command, c)
	flags.BoolVarP(&o.watch, "watch", "w", false, "go on with calls that are created or change")
	flags.IntVar(&o.limit, "limit", 0, "list at most so many calls, the newest (default: all)")
	o.formats.Add(command)
	c.AddRawFlag(command)
	o.changed = flags.Changed
	cli.Must(command.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions))
	return command
}

func (o *getOptions) run(ctx context.Context, names []string) error {
	if err := o.validate(names); err != nil {
		return err
	}
	cluster, err := o.Connect()
	if err != nil {
		return err
	}
	q := callQuery{namespace: cluster.Namespace, options: o.listOptions(), whole: o.formats.Format() == "wide"}
	if o.allNamespaces {
		q.namespace = ""
	}
	if o.formats.IsObject() {
		return o.runObjects(ctx, cluster, q, names)
	}
	return o.runTable(ctx, cluster, q, names)
}

func (o *getOptions) validate(names []string) error {
	switch {
	case o.allNamespaces && len(names) > 0:
		return errors.New("names and --all-namespaces can't be used together: select one namespace with -n")
	case o.limit < 0 || o.limit == 0 && o.changed("limit"):
		return fmt.Errorf("--limit %d: must be at least 1; without --limit, all calls are listed", o.limit)
	case o.watch && len(names) > 1:
		return errors.New("--watch can be used with one name, or with flags that select calls, not with several names")
	default:
		return o.callFilter.validate()
	}
}

// named returns queries for names: each for one call that the flags select too.
func named(q callQuery, name string) callQuery {
	selected := fields.ParseSelectorOrDie(q.options.FieldSelector)
	q.options.FieldSelector = fields.AndSelectors(fields.OneTermEqualSelector(fieldName, name), selected).String()
	return q
}

// runTable prints the table that the API server makes.
func (o *getOptions) runTable(ctx context.Context, c *cli.Cluster, q callQuery, names []string) error {
	table, err := o.table(ctx, c, q, names)
	if err != nil {
		return err
	}
	if len(table.Rows) == 0 {
		where := fmt.Sprintf(" in namespace %s.", c.Namespace)
		if o.allNamespaces {
			where = "."
		}
		fmt.Fprintln(o.ErrOut, "No calls found"+where)
	}
	printer := o.tablePrinter()
	version := table.ResourceVersion
	if err := printer(table); err != nil || !o.watch {
		return err
	}
	q.accept = acceptTable
	if len(names) == 1 {
		q = named(q, names[0])
	}
	return o.follow(ctx, c, q, version, func(object runtime.Object) error {
		changed, ok := object.(*metav1.Table)
		if !ok {
			return nil
		}
		o.keepRecent(changed)
		return printer(changed)
	})
}

// follow watches, from the list on, and begins again where the API server forgot what happened.
func (o *getOptions) follow(ctx context.Context, c *cli.Cluster, q callQuery, version string, show func(runtime.Object) error) error {
	for {
		err := watchCalls(ctx, c, q, version, show, func(err error) {
			o.Note(false, "note: the watch failed, retrying: %s", err)
		})
		if !errors.Is(err, errTooOld) {
			return err
		}
		o.Note(false, "note: the watch was too far behind and begins again: changes may be missing")
		version = ""
	}
}

// table reads the selected calls: newest first, and with names in their order.
func (o *getOptions) table(ctx context.Context, c *cli.Cluster, q callQuery, names []string) (*metav1.Table, error) {
	if len(names) == 0 {
		table, err := callTable(ctx, c, q)
		if err != nil {
			return nil, err
		}
		sortNewestFirst(table.Rows)
		o.keepRecent(table)
		o.cut(table)
		return table, nil
	}
	all := &metav1.Table{}
	for _, name := range names {
		table, err := o.oneCall(ctx, c, q, name)
		if err != nil {
			return nil, err
		}
		rows := append(all.Rows, table.Rows...)
		*all = *table
		all.Rows = rows
	}
	o.keepRecent(all)
	o.cut(all)
	return all, nil
}

// oneCall reads one call, which must exist, and leaves it out if the flags do.
func (o *getOptions) oneCall(ctx context.Context, c *cli.Cluster, q callQuery, name string) (*metav1.Table, error) {
	existing := q
	existing.name = name
	table, err := callTable(ctx, c, existing)
	if err != nil || !o.isSet() {
		return table, err
	}
	return callTable(ctx, c, named(q, name))
}

func (o *getOptions) keepRecent(table *metav1.Table) {
	table.Rows = slices.DeleteFunc(table.Rows, func(row metav1.TableRow) bool {
		return !o.isRecent(rowCall(&row).CreationTimestamp, o.now())
	})
}

func (o *getOptions) cut(table *metav1.Table) {
	if o.limit > 0 && len(table.Rows) > o.limit {
		table.Rows = table.Rows[:o.limit]
	}
}

// tablePrinter returns a function that prints tables below each other.
func (o *getOptions) tablePrinter() func(*metav1.Table) error {
	wide := o.formats.Format() == "wide"
	printer := printers.NewTablePrinter(printers.PrintOptions{WithNamespace: o.allNamespaces, Wide: wide})
	out := printers.GetNewTabWriter(o.Out)
	var columns []metav1.TableColumnDefinition
	return func(table *metav1.Table) error {
		// The API server says the columns once for each watch.
		if table.ColumnDefinitions != nil {
			columns = table.ColumnDefinitions
		}
		table.ColumnDefinitions = columns
		if wide {
			addSessionColumn(table)
		}
		tidyRows(table)
		if err := printer.PrintObj(table, out); err != nil {
			return fmt.Errorf("print the table: %w", err)
		}
		return out.Flush()
	}
}

// runObjects prints a single call as an object, several as a list.
func (o *getOptions) runObjects(ctx context.Context, c *cli.Cluster, q callQuery, names []string) error {
	printer, err := o.formats.ToPrinter()
	if err != nil {
		return err
	}
	list, err := o.objects(ctx, c, q, names)
	if err != nil {
		return err
	}
	if err := o.printObjects(printer, list, len(names) == 1 || o.watch); err != nil || !o.watch {
		return err
	}
	q.accept = acceptObject
	if len(names) == 1 {
		q = named(q, names[0])
	}
	return o.follow(ctx, c, q, list.ResourceVersion, func(object runtime.Object) error {
		call, ok := object.(*v1alpha1.ToolCall)
		if !ok || !o.isRecent(call.CreationTimestamp, o.now()) {
			return nil
		}
		call.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolCall"))
		return printer.PrintObj(call, o.Out)
	})
}

// objects reads the selected calls as objects.
func (o *getOptions) objects(ctx context.Context, c *cli.Cluster, q callQuery, names []string) (*v1alpha1.ToolCallList, error) {
	list := &v1alpha1.ToolCallList{}
	for _, name := range names {
		call, err := c.GetCall(ctx, name)
		if err != nil {
			return nil, err
		}
		list.Items, list.ResourceVersion = append(list.Items, *call), call.ResourceVersion
	}
	if len(names) == 0 || o.isSet() {
		selected, err := selectedObjects(ctx, c, q, names)
		if err != nil {
			return nil, err
		}
		selected.Items = slices.DeleteFunc(selected.Items, func(call v1alpha1.ToolCall) bool {
			return !o.isRecent(call.CreationTimestamp, o.now())
		})
		slices.SortStableFunc(selected.Items, func(a, b v1alpha1.ToolCall) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
		list = selected
	}
	if o.limit > 0 && len(list.Items) > o.limit {
		list.Items = list.Items[:o.limit]
	}
	return list, nil
}

// selectedObjects reads the calls that a query selects: of those names, where there are some.
func selectedObjects(ctx context.Context, c *cli.Cluster, q callQuery, names []string) (*v1alpha1.ToolCallList, error) {
	if len(names) == 0 {
		return callList(ctx, c, q)
	}
	var all *v1alpha1.ToolCallList
	for _, name := range names {
		list, err := callList(ctx, c, named(q, name))
		if err != nil {
			return nil, err
		}
		if all != nil {
			list.Items = append(all.Items, list.Items...)
		}
		all = list
	}
	return all, nil
}

// printObjects prints calls as one list, or each by itself.
func (o *getOptions) printObjects(printer printers.ResourcePrinter, list *v1alpha1.ToolCallList, each bool) error {
	if !each && o.formats.Format() != "name" {
		return printer.PrintObj(list, o.Out)
	}
	for i := range list.Items {
		if err := printer.PrintObj(&list.Items[i], o.Out); err != nil {
			return err
		}
	}
	return nil
}

// sessionName is the name of the session that the call runs in, empty if it runs in none.
func sessionName(call *v1alpha1.ToolCall) string {
	if call.Spec.SessionRef == nil {
		return ""
	}
	return call.Spec.SessionRef.Name
}

// PhaseOf returns Pending for a call that the operator has not seen yet.
func PhaseOf(call *v1alpha1.ToolCall) string {
	if call.Status.Phase == "" {
		return string(v1alpha1.PhasePending)
	}
	return string(call.Status.Phase)
}

func Requester(call *v1alpha1.ToolCall) string {
	if call.Spec.RequestedBy == nil {
		return ""
	}
	return call.Spec.RequestedBy.Username
}

// watchPause is how long to wait before a watch is begun again.
const watchPause = time.Second

// errTooOld says that the API server doesn't have what happened since a resource version any more.
var errTooOld = errors.New("the watch is too far behind")

// watchCalls passes on each call that is added or changed after a resource version, as a table or as an object, until show
// fails or the context ends. A watch that ends is begun again where it was; errTooOld says that it can't. notice receives why
// nothing comes, once in each interruption.
func watchCalls(ctx context.Context, c *cli.Cluster, q callQuery, from string, show func(runtime.Object) error, notice func(error)) error {
	q.options.Watch, q.options.Limit, q.options.Continue = true, 0, ""
	q.options.AllowWatchBookmarks = true
	isNoticed := false
	for {
		q.options.ResourceVersion = from
		watching, err := request(c, &q).Watch(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsGone(err) || apierrors.IsResourceExpired(err):
			return errTooOld
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			return c.ReadError("watch calls", err)
		case err != nil && !isNoticed:
			notice(err)
			isNoticed = true
		case err == nil:
			isNoticed = false
			from, err = passEvents(watching, from, show)
			watching.Stop()
			if err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(watchPause):
		}
	}
}

// passEvents passes the events of one watch on, and returns the last resource version.
func passEvents(watching watch.Interface, from string, show func(runtime.Object) error) (string, error) {
	for event := range watching.ResultChan() {
		if event.Type == watch.Error {
			if err := apierrors.FromObject(event.Object); apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
				return from, errTooOld
			}
			return from, nil // The next watch says whether it lasts.
		}
		version := resourceVersionOf(event.Object)
		if table, ok := event.Object.(*metav1.Table); ok {
			if err := decodeRows(table); err != nil {
				return from, fmt.Errorf("watch calls: %w", err)
			}
			if version == "" && len(table.Rows) > 0 {
				version = rowCall(&table.Rows[0]).ResourceVersion
			}
		}
		from = cli.OrText(version, from)
		if event.Type != watch.Added && event.Type != watch.Modified {
			continue
		}
		if err := show(event.Object); err != nil {
			return from, err
		}
	}
	return from, nil
}
