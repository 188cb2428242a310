package controllers

import (
	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/metrics"
)

// announce tells the world of a transition that was just recorded.
func (r *ToolCallReconciler) announce(s *scope) {
	before, after := s.original.Status.Phase, s.call.Status.Phase
	if before == after || !after.Terminal() {
		return
	}
	metrics.CountFinished(&s.call.Status)
	r.Trace.RecordCall(s.call, s.seen, s.now)
	if after == v1alpha1.PhaseSucceeded {
		// The status says it all: an Event for each would be a fifth of what a call costs the API server.
		return
	}
	kind := corev1.EventTypeNormal
	if after == v1alpha1.PhaseFailed || after == v1alpha1.PhaseDenied {
		kind = corev1.EventTypeWarning
	}
	r.Events.Eventf(s.call, nil, kind, s.call.Status.Reason, string(after), "%s", clip(s.call.Status.Message, maxNote))
}

// maxNote bounds an Event's note, in bytes: the API server takes 1024.
const maxNote = 1000
