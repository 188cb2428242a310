package toolsession

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/trigger"
)

// onCalls has sessions looked at which wait for a call to come or to end. A session that is ready isn't: it may have a hundred calls a
// second.
func (r *watches) onCalls() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q trigger.Requests) {
			r.noteCall(ctx, e.Object, false, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q trigger.Requests) {
			r.noteCall(ctx, e.ObjectNew, false, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q trigger.Requests) { r.noteCall(ctx, e.Object, true, q) },
	}
}

// noteCall has the session of a call looked at. The cache loses a call that has ended.
func (r *watches) noteCall(ctx context.Context, o client.Object, ended bool, q trigger.Requests) {
	call, ok := o.(*v1alpha1.ToolCall)
	if !ok || call.Spec.SessionRef == nil {
		return
	}
	name := types.NamespacedName{Namespace: call.Namespace, Name: call.Spec.SessionRef.Name}
	session := &v1alpha1.ToolSession{}
	if r.Objects.Get(ctx, name, session, client.DisableReadYourWritesConsistency) != nil {
		return
	}
	if session.Status.Phase != v1alpha1.SessionReady || session.DeletionTimestamp != nil || ended && r.hasHadAll(session) {
		q.Add(reconcile.Request{NamespacedName: name})
	}
}

// isAllowed says that a call was found to be one of a user who may use the session, and waits for it or runs. Others must neither keep
// the session from being idle nor wake it. One that was found to be allowed stays so while nobody answers for it a second time.
func isAllowed(call *v1alpha1.ToolCall) bool {
	wasAllowed := call.Status.Timings != nil && call.Status.Timings.AcceptedMilliseconds != nil
	return call.Status.Session != nil && !call.Status.Phase.Terminal() && (wasAllowed || !call.IsUndecided())
}

// hasHadAll says that a session's runner takes no more calls.
func (r *watches) hasHadAll(session *v1alpha1.ToolSession) bool {
	process := host.FindSessionHost(r.Hub, session)
	return process != nil && process.Runner != nil && process.Runner.Taken() >= session.MaxCalls()
}
