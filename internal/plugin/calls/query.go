package calls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

// listUnfinishedCalls lists those that can be cancelled.
func listUnfinishedCalls(ctx context.Context, c *cli.Cluster) (names []string, err error) {
	calls, err := (&callTargets{all: true}).resolve(ctx, c, nil, unfinished...)
	for i := range calls {
		names = append(names, calls[i].Name)
	}
	return names, err
}

// listRequesters lists the users who created the namespace's calls, or those of all namespaces if the command is for them.
func listRequesters(command *cobra.Command) cli.Lister {
	return func(ctx context.Context, c *cli.Cluster) ([]string, error) {
		q := callQuery{namespace: c.Namespace}
		if all, err := command.Flags().GetBool("all-namespaces"); err == nil && all {
			q.namespace = ""
		}
		table, err := callTable(ctx, c, q)
		if err != nil {
			return nil, err
		}
		var names []string
		column := columnIndex(table.ColumnDefinitions, "Requested-By")
		for i := range table.Rows {
			names = append(names, terminal.SafeLine(cellText(&table.Rows[i], column)))
		}
		slices.Sort(names)
		return slices.Compact(names), nil
	}
}

// Fields by which the API server selects calls.
const (
	fieldName        = "metadata.name"
	fieldPhase       = "status.phase"
	fieldRequestedBy = "spec.requestedBy.username"
	FieldSession     = "spec.sessionRef.name"
)

// phases lists the phases in the order in which a call can reach them: first those of calls that haven't finished.
var (
	phases               = []string{"Pending", "Running", "Succeeded", "Failed", "Denied", "Cancelled"}
	unfinished, finished = phases[:2], phases[2:]
)

// callFilter are the flags that select calls. The API server applies all of them but --since.
type callFilter struct {
	selector    string
	session     string
	requestedBy string
	phases      []string
	since       time.Duration
}

func (f *callFilter) add(command *cobra.Command, c *cli.CLI) {
	flags := command.Flags()
	cli.AddSelectorFlag(command, &f.selector, "label selector, e.g. team=search")
	cli.AddNameFlag(command, "session", "only calls in sessions of this name", c.Complete(cli.ListSessions), func(name string) { f.session = name })
	cli.AddNameFlag(command, "requested-by", "only calls that this user created, e.g. system:serviceaccount:agents:agent", c.Complete(listRequesters(command)),
		func(name string) { f.requestedBy = name })
	cli.AddPhaseFlag(command, &f.phases, phases, "only calls in these phases")
	flags.DurationVar(&f.since, "since", 0, "only calls that were created within this time, e.g. 10m or 2h")
	cli.CheckBefore(command, f.validate)
}

// validate checks the flags. The message says what would be right.
func (f *callFilter) validate([]string) error {
	if f.since < 0 {
		return fmt.Errorf("--since %s: must not be negative; it is how long ago, e.g. 10m", f.since)
	}
	return nil
}

// isSet reports whether the filter leaves anything out.
func (f *callFilter) isSet() bool {
	return f.selector != "" || f.session != "" || f.requestedBy != "" || len(f.phases) > 0 || f.since > 0
}

// listOptions is what the API server selects by.
func (f *callFilter) listOptions() metav1.ListOptions {
	var selectors []fields.Selector
	if f.session != "" {
		selectors = append(selectors, fields.OneTermEqualSelector(FieldSession, f.session))
	}
	if f.requestedBy != "" {
		selectors = append(selectors, fields.OneTermEqualSelector(fieldRequestedBy, f.requestedBy))
	}
	selectors = append(selectors, phaseSelectors(f.phases)...)
	return metav1.ListOptions{LabelSelector: f.selector, FieldSelector: fields.AndSelectors(selectors...).String()}
}

// phaseSelectors select calls in any of some phases, all calls for none. A field selector has no "or": it excludes the others.
func phaseSelectors(wanted []string) []fields.Selector {
	if len(wanted) == 0 {
		return nil
	}
	var selectors []fields.Selector
	for _, phase := range phases {
		if !cli.ContainsFold(wanted, phase) {
			selectors = append(selectors, fields.OneTermNotEqualSelector(fieldPhase, phase))
		}
	}
	// A call that the operator hasn't seen yet has no phase, and counts as Pending.
	if !cli.ContainsFold(wanted, string(v1alpha1.PhasePending)) {
		selectors = append(selectors, fields.OneTermNotEqualSelector(fieldPhase, ""))
	}
	return selectors
}

// keepRecent leaves out of a table the calls that were created before --since.
func (f *callFilter) keepRecent(table *metav1.Table) {
	now := time.Now()
	table.Rows = slices.DeleteFunc(table.Rows, func(row metav1.TableRow) bool {
		return f.since > 0 && now.Sub(rowCall(&row).CreationTimestamp.Time) > f.since
	})
}

// pageSize is how many calls one request reads.
const pageSize = 500

// acceptTable asks the API server for a table.
const acceptTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

// callQuery says which calls are read.
type callQuery struct {
	// namespace is empty for all.
	namespace string
	// name is that of one call, empty for a list.
	name string
	// whole adds the calls themselves to a table's rows, which have only their metadata otherwise.
	whole   bool
	options metav1.ListOptions
}

func request(c *cli.Cluster, q *callQuery) *rest.Request {
	request := c.Calls.Get().NamespaceIfScoped(q.namespace, q.namespace != "").Resource("toolcalls").SetHeader("Accept", acceptTable)
	if q.name != "" {
		request = request.Name(q.name)
	} else {
		request = request.VersionedParams(&q.options, runtime.NewParameterCodec(cli.Scheme()))
	}
	if q.whole {
		request = request.Param("includeObject", string(metav1.IncludeObject))
	}
	return request
}

// callTable reads calls as the table that the API server makes of them, in pages; all at once when the API server doesn't have the list any
// more, after some minutes.
func callTable(ctx context.Context, c *cli.Cluster, q callQuery) (*metav1.Table, error) {
	q.options.Limit = pageSize
	all := &metav1.Table{}
	for {
		part := &metav1.Table{}
		err := request(c, &q).Do(ctx).Into(part)
		switch {
		case err != nil && q.name != "":
			return nil, c.Explain("get", "toolcalls", "call "+q.name, err)
		case apierrors.IsResourceExpired(err) && q.options.Continue != "":
			all, q.options.Continue, q.options.Limit = &metav1.Table{}, "", 0
			continue
		case err != nil:
			return nil, c.Explain("list", "toolcalls", "calls", err)
		}
		if err := decodeRows(part); err != nil {
			return nil, err
		}
		appendTable(all, part)
		if q.options.Continue = part.Continue; q.options.Continue == "" {
			return all, nil
		}
	}
}

// appendTable adds the rows of a part, which says what else holds for the whole, except the columns.
func appendTable(all, part *metav1.Table) {
	rows, columns := append(all.Rows, part.Rows...), all.ColumnDefinitions
	*all = *part
	all.Rows = rows
	if columns != nil {
		all.ColumnDefinitions = columns
	}
}

// decodeRows decodes what a table's rows say of their objects. A row without an object is an error.
func decodeRows(table *metav1.Table) error {
	for i := range table.Rows {
		object := &table.Rows[i].Object
		if object.Object != nil {
			continue
		}
		into := &v1alpha1.ToolCall{}
		if err := json.Unmarshal(object.Raw, into); err != nil {
			return fmt.Errorf("read the API server's table: %w", err)
		}
		object.Object = into
	}
	return nil
}

// rowCall is the call of a decoded row: only its metadata, unless the query was for the whole.
func rowCall(row *metav1.TableRow) *v1alpha1.ToolCall { return row.Object.Object.(*v1alpha1.ToolCall) }

// sortNewestFirst sorts rows by the creation of their calls.
func sortNewestFirst(rows []metav1.TableRow) {
	slices.SortStableFunc(rows, func(a, b metav1.TableRow) int {
		return rowCall(&b).CreationTimestamp.Compare(rowCall(&a).CreationTimestamp.Time)
	})
}

// columnIndex finds a column by its name, whatever its case; -1 if the operator's version has none.
func columnIndex(columns []metav1.TableColumnDefinition, name string) int {
	return slices.IndexFunc(columns, func(c metav1.TableColumnDefinition) bool { return strings.EqualFold(c.Name, name) })
}

// cell is what a row has in a column; nil for nothing, and where there is no such column.
func cell(row *metav1.TableRow, column int) any {
	if column < 0 || column >= len(row.Cells) {
		return nil
	}
	return row.Cells[column]
}

// cellText is the text of a cell, empty for none.
func cellText(row *metav1.TableRow, column int) string {
	if value := cell(row, column); value != nil {
		return fmt.Sprint(value)
	}
	return ""
}

// cellNumber is the number in a cell.
func cellNumber(row *metav1.TableRow, column int) (int64, bool) {
	n, ok := cell(row, column).(int64)
	return n, ok
}

// columnDuration is the API server's column of milliseconds.
const columnDuration = "Duration-MS"

// tidyRows makes cells safe and readable: a dash for nothing, Pending for a call that the operator hasn't seen, and units for
// durations.
func tidyRows(table *metav1.Table) {
	columns := slices.Clone(table.ColumnDefinitions)
	phase, duration := columnIndex(columns, "Phase"), columnIndex(columns, columnDuration)
	if duration >= 0 {
		columns[duration].Name = "Duration"
	}
	table.ColumnDefinitions = columns
	for i := range table.Rows {
		row := &table.Rows[i]
		if ms, ok := cellNumber(row, duration); ok {
			row.Cells[duration] = cli.FormatMilliseconds(ms)
		}
		for j := range row.Cells {
			text := terminal.SafeLine(cellText(row, j))
			switch {
			case strings.TrimSpace(text) != "":
			case j == phase:
				text = string(v1alpha1.PhasePending)
			default:
				text = "-"
			}
			row.Cells[j] = text
		}
	}
}

// callTargets are the calls that a command works on: by name, by label, or all of the namespace.
type callTargets struct {
	selector string
	all      bool
}

func (t *callTargets) add(command *cobra.Command) {
	cli.AddSelectorFlag(command, &t.selector, "instead of names: the calls that this label selector selects, e.g. team=search")
	command.Flags().BoolVar(&t.all, "all", false, "instead of names: all calls of the namespace")
	cli.CheckBefore(command, t.validate)
}

// validate accepts names, a selector or --all, and exactly one of them.
func (t *callTargets) validate(names []string) error {
	switch {
	case len(names) > 0 && (t.selector != "" || t.all):
		return errors.New("names can't be used together with -l or --all: use one of them")
	case t.selector != "" && t.all:
		return errors.New("-l and --all can't be used together: -l selects among all calls of the namespace")
	case len(names) == 0 && t.selector == "" && !t.all || slices.Contains(names, ""):
		return errors.New("specify the names of the calls, -l LABEL=VALUE or --all: \"kubectl toolcall get\" lists the calls")
	}
	if selector, err := labels.Parse(t.selector); t.selector != "" && err == nil && selector.Empty() {
		// It would select every call: a variable of a script may be empty.
		return fmt.Errorf("--selector %q: selects nothing in particular: specify LABEL=VALUE, or --all for all calls", t.selector)
	}
	return nil
}

// isSelection reports whether the calls aren't named one by one.
func (t *callTargets) isSelection() bool { return t.all || t.selector != "" }

// resolve returns what is known of the calls: the names that were given, or else the metadata of the calls that are selected, oldest first,
// in the given phases, or in any for none.
func (t *callTargets) resolve(ctx context.Context, c *cli.Cluster, names []string, inPhases ...string) (all []metav1.ObjectMeta, err error) {
	for _, name := range names {
		all = append(all, metav1.ObjectMeta{Name: name})
	}
	if !t.isSelection() {
		return all, nil
	}
	filter := callFilter{selector: t.selector, phases: inPhases}
	table, err := callTable(ctx, c, callQuery{namespace: c.Namespace, options: filter.listOptions()})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(table.Rows, func(a, b metav1.TableRow) int {
		return rowCall(&a).CreationTimestamp.Compare(rowCall(&b).CreationTimestamp.Time)
	})
	for i := range table.Rows {
		all = append(all, rowCall(&table.Rows[i]).ObjectMeta)
	}
	return all, nil
}

// noneSelected says that a selection selects no call.
func (t *callTargets) noneSelected(c *cli.Cluster) error {
	if t.all {
		return fmt.Errorf("namespace %q has no calls: -n selects another namespace", c.Namespace)
	}
	return fmt.Errorf("no call in namespace %q matches %q: \"kubectl toolcall get -o yaml\" shows the labels of calls, -n selects another namespace", c.Namespace, t.selector)
}
