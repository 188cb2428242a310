package toolcall

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/store"
)

// announce tells the world of a transition that was just recorded.
func (r *Reconciler) announce(ctx context.Context, o *observation, after *v1alpha1.ToolCall) {
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
	if !r.eventLimits.allow(after.Namespace, o.now) {
		metrics.CountDroppedEvent()
		return
	}
	r.Events.Eventf(after, nil, kind, s.Reason, string(s.Phase), "%s", bounds.Note(s.Message))
}

// announceOutput tells the world what the output store did of a call.
func (r *Reconciler) announceOutput(o *observation, after *v1alpha1.ToolCall) {
	of := o.outputOf()
	before := map[output.Key]store.State{}
	for _, part := range of.partsOf(&o.call.Status) {
		before[part.key] = part.state()
	}
	for _, part := range of.partsOf(&after.Status) {
		state := part.state()
		if state == "" || state == store.Storing || state == before[part.key] {
			continue
		}
		metrics.CountStored(after.Namespace, &after.Status, string(state), part.kept())
		if state == store.Lost {
			metrics.CountStoreError(metrics.StoreWrite)
		}
	}
	was := meta.FindStatusCondition(o.call.Status.Conditions, v1alpha1.ConditionOutputStored)
	now := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionOutputStored)
	if now == nil || was != nil && was.Reason == now.Reason {
		return
	}
	if now.Reason != v1alpha1.ReasonOutputLost {
		return
	}
	if !r.eventLimits.allow(after.Namespace, o.now) {
		metrics.CountDroppedEvent()
		return
	}
	r.Events.Eventf(after, nil, corev1.EventTypeWarning, now.Reason, "StoreOutput", "%s", bounds.Note(now.Message))
}
