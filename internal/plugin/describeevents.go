package plugin

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/plugin/terminal"
)

// events are those of an object, oldest first, or why they can't be read.
type events struct {
	items []corev1.Event
	err   error
}

// eventsOf reads the Events of an object.
func (c *cluster) eventsOf(ctx context.Context, object client.Object) events {
	list := &corev1.EventList{}
	err := c.client.List(ctx, list, client.InNamespace(object.GetNamespace()), client.MatchingFields{"involvedObject.uid": string(object.GetUID())})
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

// writeEvents prints Events as a table, below a title.
func writeEvents(out io.Writer, found events, now time.Time) error {
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
	w := newTable(out)
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
