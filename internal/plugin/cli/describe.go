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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/plugin/terminal"
)

// NewTable returns a writer that aligns tab-separated cells.
func NewTable(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 8, 2, ' ', 0) }

// WriteRow writes one row of a table; empty cells show as a dash.
func WriteRow(out io.Writer, cells []string) {
	safe := make([]string, len(cells))
	for i, cell := range cells {
		safe[i] = terminal.SafeLine(cell)
		if strings.TrimSpace(safe[i]) == "" {
			safe[i] = "-"
		}
	}
	fmt.Fprintln(out, strings.Join(safe, "\t"))
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

func OrText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// events are those of an object, oldest first, or why they can't be read.
type events struct {
	items []corev1.Event
	err   error
}

// EventsOf reads the Events of an object.
func (c *Cluster) EventsOf(ctx context.Context, object client.Object) events {
	list := &corev1.EventList{}
	err := c.Client.List(ctx, list, client.InNamespace(object.GetNamespace()), client.MatchingFields{"involvedObject.uid": string(object.GetUID())})
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return eventTime(&a).Compare(eventTime(&b)) })
	return events{list.Items, err}
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

// WriteEvents prints Events as a table, below a title.
func WriteEvents(out io.Writer, found events, now time.Time) error {
	switch {
	case apierrors.IsForbidden(found.err):
		fmt.Fprintln(out, "Events:  not shown: you have no permission to list events in this namespace")
		return nil
	case found.err != nil:
		return fmt.Errorf("list events: %w", found.err)
	case len(found.items) == 0:
		fmt.Fprintln(out, "Events:  none")
		return nil
	}
	fmt.Fprintln(out, "Events:")
	w := NewTable(out)
	for i := range found.items {
		e := &found.items[i]
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
type Description struct{ *tabwriter.Writer }

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
		for _, c := range conditions {
			if c.Type == kind {
				fields = append(fields, Field{kind, string(c.Status) + " (" + c.Reason + ") since " + c.LastTransitionTime.UTC().Format(time.TimeOnly)})
			}
		}
	}
	return fields
}

func OptionalDuration(ms *int64) string {
	if ms == nil {
		return ""
	}
	return FormatMilliseconds(*ms)
}
