package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const (
	// pageSize is how many calls one request reads.
	pageSize = 500
	// acceptTable asks the API server for a table, acceptObject for the objects.
	acceptTable  = "application/json;as=Table;v=v1;g=meta.k8s.io"
	acceptObject = "application/json"
)

// callQuery says which calls are read, and in which form.
type callQuery struct {
	// namespace is empty for all.
	namespace string
	// name is that of one call, empty for a list.
	name string
	// accept is acceptTable or acceptObject.
	accept string
	// whole adds the calls themselves to a table's rows, which have only their metadata otherwise.
	whole   bool
	options metav1.ListOptions
}

func (c *cluster) request(q *callQuery) *rest.Request {
	request := c.calls.Get().NamespaceIfScoped(q.namespace, q.namespace != "").Resource("toolcalls").SetHeader("Accept", q.accept)
	if q.name != "" {
		request = request.Name(q.name)
	} else {
		request = request.VersionedParams(&q.options, c.parameters)
	}
	if q.whole {
		request = request.Param("includeObject", string(metav1.IncludeObject))
	}
	return request
}

// page is one part of a list.
type page interface {
	runtime.Object
	metav1.ListInterface
}

// eachPage reads a list in pages, and passes each on. Where the API server forgot the list meanwhile, it reads it again, whole:
// reset drops what came before.
func (c *cluster) eachPage(ctx context.Context, q callQuery, newPage func() page, take func(page) error, reset func()) error {
	q.options.Limit = pageSize
	for {
		got := newPage()
		err := c.request(&q).Do(ctx).Into(got)
		if apierrors.IsResourceExpired(err) && q.options.Continue != "" {
			q.options.Limit, q.options.Continue = 0, ""
			reset()
			continue
		}
		if err != nil {
			return c.readError(orText(prefixed("call ", q.name), "calls"), err)
		}
		if err := take(got); err != nil {
			return err
		}
		if q.options.Continue = got.GetContinue(); q.options.Continue == "" {
			return nil
		}
	}
}

// callTable reads calls as the table that the API server makes of them.
func (c *cluster) callTable(ctx context.Context, q callQuery) (*metav1.Table, error) {
	q.accept = acceptTable
	all := &metav1.Table{}
	err := c.eachPage(ctx, q, func() page { return &metav1.Table{} }, func(got page) error {
		part := got.(*metav1.Table)
		if err := decodeRows(part); err != nil {
			return err
		}
		rows, columns := append(all.Rows, part.Rows...), all.ColumnDefinitions
		if columns == nil {
			columns = part.ColumnDefinitions
		}
		*all = *part
		all.Rows, all.ColumnDefinitions = rows, columns
		return nil
	}, func() { *all = metav1.Table{} })
	return all, err
}

// callList reads calls as objects.
func (c *cluster) callList(ctx context.Context, q callQuery) (*v1alpha1.ToolCallList, error) {
	q.accept = acceptObject
	all := &v1alpha1.ToolCallList{}
	err := c.eachPage(ctx, q, func() page { return &v1alpha1.ToolCallList{} }, func(got page) error {
		part := got.(*v1alpha1.ToolCallList)
		all.ListMeta, all.Items = part.ListMeta, append(all.Items, part.Items...)
		return nil
	}, func() { *all = v1alpha1.ToolCallList{} })
	for i := range all.Items {
		all.Items[i].SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolCall"))
	}
	all.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolCallList"))
	return all, err
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
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

// cellText is the text of a cell, empty for none.
func cellText(row *metav1.TableRow, column int) string {
	if column < 0 || column >= len(row.Cells) || row.Cells[column] == nil {
		return ""
	}
	return fmt.Sprint(row.Cells[column])
}

// cellNumber is the number in a cell.
func cellNumber(row *metav1.TableRow, column int) (int64, bool) {
	if column < 0 || column >= len(row.Cells) {
		return 0, false
	}
	switch n := row.Cells[column].(type) {
	case int64:
		return n, true
	case float64:
		return int64(n), true
	default:
		return 0, false
	}
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
			row.Cells[duration] = formatMilliseconds(ms)
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

// addSessionColumn adds the session, which the API server's table doesn't have, behind the requester. The rows have whole calls.
func addSessionColumn(table *metav1.Table) {
	at := columnIndex(table.ColumnDefinitions, "Requested-By") + 1
	if at > 0 && table.ColumnDefinitions != nil {
		table.ColumnDefinitions = slices.Insert(slices.Clone(table.ColumnDefinitions), at, metav1.TableColumnDefinition{Name: "Session", Type: "string", Priority: 1})
	}
	for i := range table.Rows {
		row := &table.Rows[i]
		if at > 0 && at <= len(row.Cells) {
			row.Cells = slices.Insert(row.Cells, at, any(sessionName(rowCall(row))))
		}
	}
}

// resourceVersionOf is where a list or an object stands in the history of the cluster.
func resourceVersionOf(object runtime.Object) string {
	if list, err := meta.ListAccessor(object); err == nil {
		return list.GetResourceVersion()
	}
	if single, err := meta.Accessor(object); err == nil {
		return single.GetResourceVersion()
	}
	return ""
}
