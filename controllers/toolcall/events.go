package toolcall

import (
	"context"
	"path"

	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/metrics"
)

// announce tells the world of a transition that was just recorded.
func (r *applier) announce(ctx context.Context, o *observation, after *v1alpha1.ToolCall) {
	s := &after.Status
	if o.call.Status.Phase == s.Phase || !s.Phase.Terminal() {
		return
	}
	metrics.CountFinished(after.Namespace, s)
	r.Trace.RecordCall(after, o.program(s), o.created, o.now)
	r.recordPrograms(ctx, o, after)
	if s.Phase == v1alpha1.PhaseSucceeded {
		// The status says it all: an Event for each would be a fifth of what a call costs the API server.
		return
	}
	kind := corev1.EventTypeNormal
	if s.Phase == v1alpha1.PhaseFailed || s.Phase == v1alpha1.PhaseDenied {
		kind = corev1.EventTypeWarning
	}
	r.Tell(after, kind, s.Reason, string(s.Phase), s.Message)
}

// program is the name of the program that was started for a call which ended; empty for none, or when that isn't known.
func (o *observation) program(s *v1alpha1.ToolCallStatus) string {
	switch {
	case s.StartTime == nil || s.Action == nil || o.decision == nil || s.Action.Type == v1alpha1.ActionFile:
		return ""
	case len(o.decision.ArgvPrefix) > 0:
		return path.Base(o.decision.ArgvPrefix[0])
	default:
		return path.Base(s.Action.Tool)
	}
}

// Tell makes an Event of a call, unless there are too many of its namespace.
func (r *applier) Tell(call *v1alpha1.ToolCall, kind, reason, action, message string) {
	if !r.eventLimits.allow(call.Namespace, r.Clock.Now()) {
		metrics.CountDroppedEvent()
		return
	}
	r.Events.Eventf(call, nil, kind, reason, action, "%s", bounds.Note(message))
}
