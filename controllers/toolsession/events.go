package toolsession

import (
	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/metrics"
)

// announce tells the world of a transition that was just recorded.
func (r *applier) announce(o *observation, after *v1alpha1.ToolSession) {
	before, s := &o.session.Status, &after.Status
	if s.Incarnation > before.Incarnation && s.Incarnation == 1 {
		metrics.CountSessionReady(after.Namespace, s)
	}
	if before.Phase == s.Phase {
		return
	}
	kind := corev1.EventTypeNormal
	switch {
	case s.Phase == v1alpha1.SessionEnded:
		metrics.CountSessionEnded(after.Namespace, s)
		if s.Reason == v1alpha1.ReasonStartFailed || s.Reason == v1alpha1.ReasonPodLost {
			kind = corev1.EventTypeWarning
		}
	case s.Phase == v1alpha1.SessionSuspended, s.Phase == v1alpha1.SessionReady && s.Incarnation > 1:
	case s.Phase == v1alpha1.SessionPending && before.Phase == v1alpha1.SessionReady:
		kind = corev1.EventTypeWarning
	default:
		return
	}
	r.Events.Eventf(after, nil, kind, s.Reason, string(s.Phase), "%s", bounds.Note(s.Message))
}
