package plugin

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// timelineWidth is how many characters the timeline of a call has.
const timelineWidth = 40

// stretch is a part of a call's time.
type stretch struct {
	mark string
	// name says what the call did meanwhile.
	name string
	// milliseconds is how long it took.
	milliseconds int64
}

// stretches divides the time of a call, up to its end or now. There are none before it was accepted.
func stretches(call *v1alpha1.ToolCall, now time.Time) []stretch {
	t := call.Status.Timings
	if t == nil || t.AcceptedMilliseconds == nil {
		return nil
	}
	end := ptr.Deref(t.FinishedMilliseconds, now.Sub(call.CreationTimestamp.Time).Milliseconds())
	accepted := max(0, *t.AcceptedMilliseconds)
	all := []stretch{{".", "until accepted", accepted}}
	if t.StartedMilliseconds == nil {
		return append(all, stretch{"-", "waiting", max(0, end-accepted)})
	}
	started := *t.StartedMilliseconds
	last := "running"
	if t.FinishedMilliseconds != nil {
		// Its process ran for less: the result has to come back.
		last = "until finished"
	}
	return append(all, stretch{"-", "until started", max(0, started-accepted)}, stretch{"#", last, max(0, end-started)})
}

// timeline draws the time of a call to scale. A part that took any time has at least one character.
func timeline(call *v1alpha1.ToolCall, now time.Time) string {
	parts := stretches(call, now)
	total := 0.0
	for _, part := range parts {
		total += float64(part.milliseconds)
	}
	if total == 0 {
		return ""
	}
	var bar strings.Builder
	var legend []string
	for _, part := range parts {
		if part.milliseconds == 0 {
			continue
		}
		bar.WriteString(strings.Repeat(part.mark, max(1, int(float64(part.milliseconds)/total*timelineWidth))))
		legend = append(legend, fmt.Sprintf("%s %s", formatMilliseconds(part.milliseconds), part.name))
	}
	return fmt.Sprintf("[%s] %s", bar.String(), strings.Join(legend, ", "))
}
