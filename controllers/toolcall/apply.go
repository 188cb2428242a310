package toolcall

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/output"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/queue"
)

// apply carries the effects out.
func (r *Reconciler) apply(ctx context.Context, o *observation, e effects) (ctrl.Result, error) {
	r.dismissOthers(o)
	if e.joinLine {
		r.SessionQueue.Add(o.session.name, o.name, positionOf(o.call, o.now))
	}
	if e.leaveLine {
		r.SessionQueue.Exclude(o.name)
		r.wakeLine(o, true)
	}
	release, ok := r.acquireShare(o.name, &e)
	if !ok {
		e = withoutShare(o, e)
	}
	defer release()
	if e.create != nil {
		var err error
		if e, err = r.createJob(ctx, o, e); err != nil {
			return ctrl.Result{}, err
		}
	}
	if e.credential != nil {
		if err := host.CreateCredential(ctx, r.Client, r.Identity, e.credential); err != nil {
			e = e.decided.createFailed(ctx, "the Secret with the token of the call's pod", e.credential, err)
		}
	}
	if err := r.writeStatus(ctx, o, e.status); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var adopted error
	if e.adopt != nil {
		adopted = r.adopt(ctx, o, e.adopt)
	}
	r.follow(ctx, o, &e)
	if err := errors.Join(adopted, host.DeleteJobs(ctx, r.Client, e.remove...)); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: e.wake}, nil
}

// acquireShare keeps one namespace, whose admission webhooks are slow, from taking all workers. The call is woken when there is a share.
func (r *applier) acquireShare(call types.NamespacedName, e *effects) (release func(), ok bool) {
	defer func() {
		if !ok {
			release = func() {}
		}
	}()
	starts, changes := e.create != nil || e.credential != nil, e.adopt != nil || len(e.remove) > 0
	if !starts {
		r.starts.Forget(call)
	}
	if starts || !changes {
		r.changes.Forget(call)
	}
	switch {
	case starts:
		return r.starts.Acquire(call)
	case changes:
		return r.changes.Acquire(call)
	default:
		return func() {}, true
	}
}

// withoutShare returns what a pass does that has to change a Job while its namespace may change no more of them. It writes what the call
// waits for only if the status says nothing yet.
func withoutShare(o *observation, e effects) effects {
	isSilent, left := e.create != nil && len(o.call.Status.Conditions) == 0, acceptWait-o.now.Sub(o.call.CreationTimestamp.Time)
	switch {
	case isSilent && left > 0:
		return effects{wake: left}
	case isSilent:
		// The API server wasn't asked for this Job yet: the condition has a reason that the start limit doesn't count from.
		status := e.decided.pending(v1alpha1.ReasonInProgress, "the API server is slow to take the namespace's Jobs: the call waits until it has taken others")
		status.Reason = v1alpha1.ReasonNotStarted
		return effects{status: status, wake: latestRetry}
	case e.adopt != nil && len(e.remove) == 0 && !e.ends() && !o.call.Status.Phase.Terminal():
		// Its runner has to be told what there is to be told: the call runs.
		e.adopt = nil
		e.wakeIn(latestRetry)
		return e
	default:
		return effects{wake: latestRetry}
	}
}

// createJob makes the call's Job. Where the API server doesn't take it, or has it already, other effects follow.
func (r *applier) createJob(ctx context.Context, o *observation, e effects) (effects, error) {
	job := e.create
	err := r.Client.Create(ctx, job)
	switch {
	case err == nil && e.status == nil && jobspec.IsSuspended(job):
		// A queue holds it back: the call says so.
		e.status = e.decided.withJob(job).accepted()
		return e, nil
	case err == nil:
		return e, nil
	case !apierrors.IsAlreadyExists(err):
		return e.decided.createFailed(ctx, "the call's Job", nil, err), nil
	}
	isTaken, err := host.IsTaken(ctx, r.Objects, job, func(there *batchv1.Job) bool {
		_, ours := jobspec.ReadDecision(there, o.call, r.Identity)
		return ours
	})
	switch {
	case err != nil:
		return effects{}, err
	case isTaken:
		return effects{status: o.fail(v1alpha1.ReasonPodRejected, foreignJobMessage(job.Name))}, nil
	default:
		return effects{wake: apicache.Lag}, nil
	}
}

// writeStatus writes the status if it changed, and says what became true by that. A conflict is an error: the next try
// is delayed more and more.
func (r *applier) writeStatus(ctx context.Context, o *observation, status *v1alpha1.ToolCallStatus) error {
	if status == nil || equality.Semantic.DeepEqual(&o.call.Status, status) {
		return nil
	}
	written := o.call.DeepCopy()
	written.Status = *status
	patch := client.MergeFromWithOptions(o.call, client.MergeFromWithOptimisticLock{})
	after := written.DeepCopy()
	if err := r.Client.Status().Patch(ctx, written, patch, readBack(after)); err != nil {
		return fmt.Errorf("write the call's status: %w", err)
	}
	if after.Status.Phase.Terminal() {
		r.noteApplets(o, after.Status.Isolation)
		r.finished.keep(after)
		if in := after.Status.Session; in != nil && in.Incarnation > 0 && !o.call.Status.Phase.Terminal() {
			r.Retention.Schedule.Ended(after)
		}
		r.spend(after)
		r.forget(o.name)
		if !output.IsStoring(&after.Status) {
			r.Outputs.Release(o.name, after.UID)
		}
	}
	if after.Status.Runner != nil {
		r.noteStart(o.name)
	}
	r.announce(ctx, o, after)
	output.Announce(o.call, after, r.Tell)
	return nil
}

// readBack says whether what is read after a write of the status has to show it. The end of a call is never seen in the
// cache.
func readBack(call *v1alpha1.ToolCall) client.SubResourcePatchOption {
	if call.Status.Phase.Terminal() {
		return client.DisableReadYourWritesConsistency
	}
	return &client.SubResourcePatchOptions{}
}

// follow tells the rest of the operator, and the runners.
func (r *applier) follow(ctx context.Context, o *observation, e *effects) {
	key := o.name
	if e.forget {
		// The session of a call that is gone isn't known, nor whether it has room.
		if session := r.forget(key); session.Name != "" {
			r.SessionQueue.Wake(session, true, true)
		}
	}
	if e.holds != "" {
		r.Queue.SetRunning(types.NamespacedName{Namespace: key.Namespace, Name: e.holds}, holderOf(o.call))
	}
	if e.handedOver {
		r.SessionQueue.Hand(key, o.session.Session.UID)
		r.noteStart(key)
	}
	if (e.holds != "" || e.handedOver) && !e.ends() {
		r.Budgets.SetRunning(holderOf(o.call))
	}
	if e.watchOutput {
		r.Outputs.Watch(o.outputOf())
	}
	if e.hello != nil {
		r.Nodes.Add(types.NamespacedName{Namespace: key.Namespace, Name: o.decision.Environment}, *e.hello, o.now)
	}
	if e.problem != nil {
		if env := (types.NamespacedName{Namespace: key.Namespace, Name: o.decision.Environment}); r.Nodes.SetProblem(env, e.problem) {
			r.Pools.Enqueue(env, 0)
		}
	}
	if e.leaveQueue || e.leaveEnvironment {
		r.Queue.Release(key)
	}
	if e.leaveQueue {
		r.Budgets.Release(key, queue.Calls)
	}
	for _, m := range e.messages {
		r.deliver(o, e, m)
	}
	if e.release {
		r.Hosts.Release(string(o.call.UID))
	}
	if e.reported != "" {
		metrics.CountReport(e.reported)
	}
	if e.forgetResult && o.keyHash() != "" {
		r.Hub.Release(o.keyHash(), string(o.call.UID))
	}
	if e.keep {
		// The answer to the write of the call's end may have been lost.
		r.spend(o.call)
		r.Retention.Keep(ctx, o.call)
		r.keepOutput(o.call)
	}
	if o.session != nil && e.makesRoom() {
		r.wakeLine(o, e.ends())
	}
}

// keepOutput forgets the output of a call that has ended, or has it looked after until all is stored.
func (r *applier) keepOutput(call *v1alpha1.ToolCall) {
	if name := client.ObjectKeyFromObject(call); output.IsStoring(&call.Status) {
		r.LookAfterOutput(name)
	} else {
		r.Outputs.Release(name, call.UID)
	}
}

// wakeLine wakes the next calls of a session that has room. When a call leaves the line, what this pass observed of the room is out of
// date: others may have looked since then, and found the call before them.
func (r *applier) wakeLine(o *observation, leaves bool) {
	room := o.session.Host.Room()
	r.SessionQueue.Wake(o.session.name, leaves || room.Calls > 0, leaves || room.Background > 0)
}

// deliver tells the runner. One that can't be reached dials in again.
func (r *applier) deliver(o *observation, e *effects, m message) {
	switch {
	case m.stop != "":
		_ = m.to.Stop(m.stop, v1alpha1.ReasonCancelRequested)
	case m.assign != nil:
		r.assignTo(o, e, m)
	case m.ack != "":
		_ = m.to.Ack(m.ack)
	case m.record != "":
		m.to.Record(m.record)
	default:
		m.to.Refuse(m.refuse)
	}
}

// assignTo hands the call over: to its session's process, or to a runner that it makes the call's own. Where that takes none now, there
// is news when it does.
func (r *applier) assignTo(o *observation, e *effects, m message) {
	owner := string(m.session)
	if owner == "" {
		owner = m.assign.CallUID
		if m.to.Begin(wire.BeginCall(m.assign.CallUID, m.assign.CallName)) != nil {
			return
		}
	}
	err := m.to.Assign(owner, m.assign)
	if errors.Is(err, wire.ErrTooLarge) {
		e.wake = latestRetry
	}
	if err != nil || m.session == "" {
		return
	}
	r.SessionQueue.Hand(o.name, m.session)
	r.noteStart(o.name)
	if m.to.Taken() >= o.session.Session.MaxCalls() {
		r.KeepSession(o.session.name)
	}
}

// dismissOthers ends what calls of the name left that are gone.
func (r *applier) dismissOthers(o *observation) {
	var uid, held types.UID
	if o.call != nil {
		uid = o.call.UID
	}
	if o.held != nil {
		held = *o.held
	}
	if o.call == nil || o.held != nil {
		r.Hub.Dismiss(o.name.Namespace, o.name.Name, string(held), "the ToolCall was deleted")
	}
	r.Hosts.ReleaseOthers(host.Claimant{Kind: wire.KindCall, NamespacedName: o.name}, string(uid))
	r.Outputs.ForgetOthers(o.name, uid)
}

// adopt makes a Job the call's own, and has the pool refilled that it came from.
func (r *applier) adopt(ctx context.Context, o *observation, before *batchv1.Job) error {
	job := before.DeepCopy()
	jobspec.Adopt(job, o.call, o.decision, o.now)
	if err := r.Client.Patch(ctx, job, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("make the waiting pod's Job the call's own: %w", err)
	}
	if pool := jobspec.PoolOf(before); pool != "" {
		r.Pools.Enqueue(types.NamespacedName{Namespace: before.Namespace, Name: pool}, 0)
	}
	return nil
}

// forget drops what is remembered of a call in flight. It returns the session in whose line others may have waited for the call.
func (r *applier) forget(call types.NamespacedName) (session types.NamespacedName) {
	r.Queue.Release(call)
	r.Queue.SetStarted(call)
	r.Budgets.Release(call, queue.Calls, queue.PendingBytes)
	r.starts.Forget(call)
	r.changes.Forget(call)
	return r.SessionQueue.Forget(call)
}

// spend counts the CPU of a call that has ended.
func (r *applier) spend(call *v1alpha1.ToolCall) {
	if spent, known := spentBy(call); known {
		r.Budgets.Spend(call.Namespace, spent)
	}
}

// noteStart says that a call isn't pending any more.
func (r *applier) noteStart(call types.NamespacedName) {
	r.Queue.SetStarted(call)
	r.Budgets.Release(call, queue.PendingBytes)
}
