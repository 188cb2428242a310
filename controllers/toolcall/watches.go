package toolcall

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/trigger"
)

// callsOfPod maps a pod to the call that it was made for or given to. A pod that carries another call's annotation can
// at most have that call looked at once more.
func (r *watches) callsOfPod(ctx context.Context, o client.Object) []reconcile.Request {
	requests := r.ifInFlight(ctx, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetAnnotations()[jobspec.AnnotationCall]})
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == "Job" {
		requests = append(requests, r.RecordedIn(ctx, types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name})...)
	}
	return requests
}

// callsOfJob maps a Job to the call that owns it, or that records it.
func (r *watches) callsOfJob(ctx context.Context, o client.Object) []reconcile.Request {
	requests := r.RecordedIn(ctx, client.ObjectKeyFromObject(o))
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != "ToolCall" {
		return requests
	}
	call := types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}
	job, ok := o.(*batchv1.Job)
	if ok && (jobspec.WasSuspended(job) || !jobspec.HasEnded(job) && r.finished.get(call) != nil) {
		// It may start again, also after its call has ended, or was made by a request that came through late.
		return append(requests, reconcile.Request{NamespacedName: call})
	}
	return append(requests, r.ifInFlight(ctx, call)...)
}

// RecordedIn are the calls in flight that record a Job as theirs.
func (r *watches) RecordedIn(ctx context.Context, job types.NamespacedName) []reconcile.Request {
	calls, err := r.Objects.CallsOfJob(ctx, job)
	if err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range calls {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&calls[i])})
	}
	return requests
}

// ifInFlight leaves out calls that the cache doesn't have: they have ended, or are looked at when they come into it.
func (r *watches) ifInFlight(ctx context.Context, call types.NamespacedName) []reconcile.Request {
	if call.Name == "" || r.Objects.Get(ctx, call, &v1alpha1.ToolCall{}, client.DisableReadYourWritesConsistency) != nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: call}}
}

// callOfApproval maps a decision to the call that it is about.
func (r *watches) callOfApproval(ctx context.Context, o client.Object) []reconcile.Request {
	decision, ok := o.(*v1alpha1.ToolCallApproval)
	if !ok {
		return nil
	}
	return r.ifInFlight(ctx, types.NamespacedName{Namespace: decision.Namespace, Name: decision.Spec.CallRef.Name})
}

// onEnvironments has the calls looked at that wait for a suspended environment, when that is resumed or deleted.
func (r *watches) onEnvironments() handler.EventHandler {
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q trigger.Requests) {
			before, ok := e.ObjectOld.(*v1alpha1.ExecutionEnvironment)
			after, isEnv := e.ObjectNew.(*v1alpha1.ExecutionEnvironment)
			if ok && isEnv && before.Spec.Suspend && !after.Spec.Suspend {
				r.enqueueWaiting(ctx, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q trigger.Requests) { r.enqueueWaiting(ctx, e.Object, q) },
	}
}

func (r *watches) enqueueWaiting(ctx context.Context, env client.Object, q trigger.Requests) {
	calls, err := r.Objects.CallsInFlight(ctx, env.GetNamespace(), func(call *v1alpha1.ToolCall) bool {
		return call.Status.Runner == nil && environmentOf(call) == env.GetName()
	})
	if err != nil {
		return
	}
	for _, call := range calls {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(call)})
	}
}

// onCalls has calls looked at. Those of sessions take their turns here, in the order in which they come.
func (r *watches) onCalls() handler.EventHandler {
	look := handler.WithLowPriorityWhenUnchanged(&handler.EnqueueRequestForObject{})
	join := func(o client.Object) {
		if call, ok := o.(*v1alpha1.ToolCall); ok && call.Spec.SessionRef != nil {
			r.SessionQueue.Add(sessionName(call), client.ObjectKeyFromObject(call), positionOf(call, r.Clock.Now()))
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q trigger.Requests) {
			join(e.Object)
			look.Create(ctx, e, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q trigger.Requests) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				// Nobody saw that the one before it was gone.
				join(e.ObjectNew)
			}
			look.Update(ctx, e, q)
		},
		DeleteFunc:  look.Delete,
		GenericFunc: look.Generic,
	}
}

// onSessions has a session's calls looked at: all of them when it ends, is suspended or loses its pod, the first in line when
// it takes calls.
func (r *watches) onSessions() handler.EventHandler {
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q trigger.Requests) {
			before, ok := e.ObjectOld.(*v1alpha1.ToolSession)
			after, isSession := e.ObjectNew.(*v1alpha1.ToolSession)
			if !ok || !isSession || !concernsCalls(before, after) {
				return
			}
			if after.Status.Phase == v1alpha1.SessionReady && after.TakesCalls() && !after.Spec.Suspend {
				r.SessionQueue.Wake(client.ObjectKeyFromObject(after), true, true)
				return
			}
			r.enqueueCallsOf(ctx, after, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q trigger.Requests) {
			if session, ok := e.Object.(*v1alpha1.ToolSession); ok {
				r.enqueueCallsOf(ctx, session, q)
			}
		},
	}
}

// concernsCalls says that a change of a session is one that its calls may wait for.
func concernsCalls(before, after *v1alpha1.ToolSession) bool {
	a, b := &before.Status, &after.Status
	return a.Phase != b.Phase || a.Reason != b.Reason || a.Message != b.Message || a.Pod != b.Pod || before.IsHeld() != after.IsHeld() ||
		before.Spec.Suspend != after.Spec.Suspend || before.TakesCalls() != after.TakesCalls()
}

func (r *watches) enqueueCallsOf(ctx context.Context, session *v1alpha1.ToolSession, q trigger.Requests) {
	calls, err := r.Objects.CallsOfSession(ctx, session)
	if err != nil {
		return
	}
	for i := range calls {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&calls[i])})
	}
}
