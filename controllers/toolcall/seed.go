package toolcall

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
)

// seedTimeout bounds the reads past the cache, during which no pass runs. A call that wasn't read by then is counted in its own pass.
const seedTimeout = 10 * time.Second

// Seed makes known, before the first pass, what an operator before this one let in: which calls have a place in their environment or wait
// for one, and what each requester keeps pending. Otherwise, a call that was accepted before could be refused when it is decided about
// again.
func (r *decider) Seed(ctx context.Context) error {
	calls, err := r.Objects.CallsInFlight(ctx, "", apicache.All)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, seedTimeout)
	defer cancel()
	var queued []*v1alpha1.ToolCall
	for _, call := range calls {
		in, err := r.environmentOf(within, call)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Can't read the environment of a call: its own pass counts it", "call", client.ObjectKeyFromObject(call))
		}
		if in != "" {
			r.Queue.SetRunning(types.NamespacedName{Namespace: call.Namespace, Name: in}, holderOf(call))
		} else if isQueued(call) && call.Spec.SessionRef == nil {
			queued = append(queued, call)
		}
		// One that says nothing and has no Job is decided about when it is looked at.
		if call.Status.Runner == nil && (in != "" || len(call.Status.Conditions) > 0) {
			r.Queue.SetPending(pendingOf(call))
		}
	}
	// All who run are known by now: a limit that becomes known meanwhile lets in nobody too many.
	for _, call := range queued {
		r.Queue.SetWaiting(types.NamespacedName{Namespace: call.Namespace, Name: environmentOf(call)}, holderOf(call))
	}
	return nil
}
