package toolcall

import (
	"context"

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
	r.Trace.RecordCall(after, o.created, o.now)
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

// Tell makes an Event of a call, unless there are too many of its namespace.
func (r *applier) Tell(call *v1alpha1.ToolCall, kind, reason, action, message string) {
	if !r.eventLimits.allow(call.Namespace, r.Clock.Now()) {
		metrics.CountDroppedEvent()
		return
	}
	r.Events.Eventf(call, nil, kind, reason, action, "%s", bounds.Note(message))
}
