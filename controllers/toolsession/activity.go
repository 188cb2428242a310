package toolsession

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/host"
)

// activity holds when sessions had a call last. After a restart of the operator it is empty, and idleness counts anew.
type activity struct {
	// had is when a session had a call that takes turns, ended when one of its calls ended.
	had, ended sync.Map
	// taken is how many calls the session's runner had taken then, carried how many transfers of files and input it had begun when that
	// was last asked.
	taken, carried sync.Map
}

// touch notes that a session has a call.
func (a *activity) touch(session types.NamespacedName, now time.Time) { a.had.Store(session, now) }

// take notes how many calls a session's runner has taken. It says whether that is another number than before.
func (a *activity) take(session types.NamespacedName, taken int) bool {
	before, had := a.taken.Swap(session, taken)
	return had && before != taken || !had && taken != 0
}

// carry notes how many transfers a session's runner has begun. It says whether that is another number than before.
func (a *activity) carry(session types.NamespacedName, begun uint64) bool {
	before, had := a.carried.Swap(session, begun)
	return had && before != begun || !had && begun != 0
}

// end notes that a call of a session ended.
func (a *activity) end(session types.NamespacedName, now time.Time) { a.ended.Store(session, now) }

// last is when the session had a call; zero when nobody knows.
func (a *activity) last(session types.NamespacedName) time.Time { return timeOf(&a.had, session) }

// lastCall is when a call of the session ended; zero when nobody knows.
func (a *activity) lastCall(session types.NamespacedName) time.Time { return timeOf(&a.ended, session) }

func timeOf(times *sync.Map, session types.NamespacedName) time.Time {
	at, _ := times.Load(session)
	t, _ := at.(time.Time)
	return t
}

func (a *activity) forget(session types.NamespacedName) {
	for _, of := range []*sync.Map{&a.had, &a.ended, &a.taken, &a.carried} {
		of.Delete(session)
	}
}

// onCalls notes that sessions have calls, and has those looked at which wait for one to come or to end. A session that is
// ready isn't: it may have a hundred calls a second.
func (r *watches) onCalls() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { r.noteCall(ctx, e.Object, false, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { r.noteCall(ctx, e.ObjectNew, false, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { r.noteCall(ctx, e.Object, true, q) },
	}
}

// noteCall takes note of a call. The cache loses a call that has ended.
func (r *watches) noteCall(ctx context.Context, o client.Object, ended bool, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	call, ok := o.(*v1alpha1.ToolCall)
	if !ok || call.Spec.SessionRef == nil {
		return
	}
	name := types.NamespacedName{Namespace: call.Namespace, Name: call.Spec.SessionRef.Name}
	session := &v1alpha1.ToolSession{}
	if r.Objects.Get(ctx, name, session, client.DisableReadYourWritesConsistency) != nil {
		return
	}
	if !call.Spec.Background && r.isTaken(session) || isAllowed(call) {
		r.activity.touch(name, r.Clock.Now())
	}
	if ended {
		r.activity.end(name, r.Clock.Now())
	}
	if session.Status.Phase != v1alpha1.SessionReady || session.DeletionTimestamp != nil || ended && r.hasHadAll(session) {
		q.Add(reconcile.Request{NamespacedName: name})
	}
}

// isAllowed says that a call which takes a session's turns was found to be one of a user who may use the session, and waits
// for it or runs. Of others nothing is noted: they must not keep the session from being idle.
func isAllowed(call *v1alpha1.ToolCall) bool {
	return !call.Spec.Background && call.Status.Session != nil && !call.Status.Phase.Terminal()
}

// isTaken says that a session's runner has taken calls since this was last asked. A call that is short is in the cache only
// as it was created, and as it was before it ended.
func (r *watches) isTaken(session *v1alpha1.ToolSession) bool {
	bound := session.Status.Runner
	if bound == nil {
		return false
	}
	runner := r.Hub.RunnerByKey(bound.KeyHash)
	return runner != nil && r.activity.take(client.ObjectKeyFromObject(session), runner.Taken())
}

// hasHadAll says that a session's runner takes no more calls.
func (r *watches) hasHadAll(session *v1alpha1.ToolSession) bool {
	process := host.FindSessionHost(r.Hub, session)
	return process != nil && process.Runner != nil && process.Runner.Taken() >= session.MaxCalls()
}

// heldBy counts the calls that a session's runner runs, those of them that take the session's turns, and those whose results
// it keeps.
func heldBy(runner *dispatch.Runner) (running, foreground, ended int) {
	for _, call := range runner.HeldCalls() {
		switch call.State {
		case dispatch.Assigned, dispatch.Running:
			running++
			if !call.Background {
				foreground++
			}
		case dispatch.Ended:
			ended++
		case dispatch.Withdrawn, dispatch.Known:
		}
	}
	return running, foreground, ended
}
