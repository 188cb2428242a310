package cli

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/terminal"
)

// Table aligns tab-separated cells.
type Table struct {
	*tabwriter.Writer
	// Namespaces shows the first cell of each row.
	Namespaces bool
}

func NewTable(out io.Writer) *Table { return &Table{Writer: tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)} }

// Row writes one row of a table about objects; empty cells show as a dash.
func (t *Table) Row(namespace string, cells ...string) {
	cells = slices.Clone(cells)
	if t.Namespaces {
		cells = slices.Insert(cells, 0, namespace)
	}
	for i, cell := range cells {
		cells[i] = terminal.SafeLine(cell)
		if strings.TrimSpace(cells[i]) == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(t, strings.Join(cells, "\t"))
}

// FormatMilliseconds formats a duration for people.
func FormatMilliseconds(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	default:
		return d.Round(time.Second).String()
	}
}

func Indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+by)
}

// eventTime is when an Event was last seen.
func eventTime(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	default:
		return e.CreationTimestamp.Time
	}
}

// eventCount is how often an Event was seen.
func eventCount(e *corev1.Event) int32 {
	if e.Series != nil {
		return e.Series.Count
	}
	return max(1, e.Count)
}

// WriteEvents prints the Events of an object as a table, oldest first.
func (c *Cluster) WriteEvents(ctx context.Context, object client.Object, now time.Time) error {
	list := &corev1.EventList{}
	err := c.Client.List(ctx, list, client.InNamespace(object.GetNamespace()), client.MatchingFields{"involvedObject.uid": string(object.GetUID())})
	switch {
	case apierrors.IsForbidden(err):
		fmt.Fprintln(c.Out, "Events:  not shown: you have no permission to list events in this namespace")
		return nil
	case err != nil:
		return fmt.Errorf("list events: %w", err)
	case len(list.Items) == 0:
		fmt.Fprintln(c.Out, "Events:  none")
		return nil
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return eventTime(&a).Compare(eventTime(&b)) })
	fmt.Fprintln(c.Out, "Events:")
	w := NewTable(c.Out)
	for i := range list.Items {
		e := &list.Items[i]
		age := duration.HumanDuration(now.Sub(eventTime(e)))
		if count := eventCount(e); count > 1 {
			age += fmt.Sprintf(" (%d times)", count)
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", terminal.SafeLine(e.Type), terminal.SafeLine(e.Reason), age, terminal.SafeLine(e.Message))
	}
	return w.Flush()
}

// Field is one line of a description: its name and its value.
type Field [2]string

// Description is a text about an object, in sections of aligned lines.
type Description struct{ *Table }

// NewDescription begins a description, which Flush ends.
func NewDescription(out io.Writer) Description { return Description{NewTable(out)} }

// Section adds lines below a title, or without one. A line without a value isn't shown, nor is the title of a section without lines.
func (d Description) Section(title string, fields []Field) {
	prefix := ""
	if title != "" {
		prefix = "  "
	}
	for _, f := range fields {
		if f[1] == "" {
			continue
		}
		if title != "" {
			fmt.Fprintf(d, "%s:\n", title)
			title = ""
		}
		fmt.Fprintf(d, "%s%s:\t%s\n", prefix, f[0], terminal.SafeLine(f[1]))
	}
}

// unquoted matches arguments that mean the same to a shell without quotes.
var unquoted = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// Quoted joins arguments so that their bounds are visible, in a form that a shell reads as the same arguments.
func Quoted(args []string) string {
	shown := make([]string, 0, len(args))
	for _, arg := range args {
		if !unquoted.MatchString(arg) {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		shown = append(shown, arg)
	}
	return strings.Join(shown, " ")
}

// ConditionFields lists conditions of the given types.
func ConditionFields(conditions []metav1.Condition, kinds ...string) []Field {
	var fields []Field
	for _, kind := range kinds {
		if c := meta.FindStatusCondition(conditions, kind); c != nil {
			fields = append(fields, Field{kind, string(c.Status) + " (" + c.Reason + ") since " + c.LastTransitionTime.UTC().Format(time.TimeOnly)})
		}
	}
	return fields
}

// ApprovalFields describe what people decide about a call, and what they decided by now.
func ApprovalFields(a *v1alpha1.ApprovalStatus, now time.Time) []Field {
	if a == nil {
		return nil
	}
	var by []string
	for _, one := range a.ApprovedBy {
		by = append(by, one.Username)
	}
	deniedBy := ""
	if a.DeniedBy != nil {
		deniedBy = a.DeniedBy.Username
	}
	expires := "was " + duration.HumanDuration(now.Sub(a.ExpiresAt.Time)) + " ago"
	if left := a.ExpiresAt.Sub(now); left > 0 {
		expires = "in " + duration.HumanDuration(left)
	}
	return []Field{
		{"Because of", strings.Join(a.Causes, ", ")}, {"Says", strings.Join(a.Messages, "; ")}, {"Ask", strings.Join(a.Approvers, ", ")},
		{"Needed", fmt.Sprint(a.Needed)}, {"Approved by", strings.Join(by, ", ")}, {"Denied by", deniedBy},
		{"Asked", duration.HumanDuration(now.Sub(a.RequestedAt.Time)) + " ago"}, {"Time limit", expires}, {"Digest", a.Digest},
	}
}

func OptionalDuration(ms *int64) string {
	if ms == nil {
		return ""
	}
	return FormatMilliseconds(*ms)
}

// Optional formats a value; it is empty for none.
func Optional[T any](format string, value *T) string {
	if value == nil {
		return ""
	}
	return fmt.Sprintf(format, *value)
}
