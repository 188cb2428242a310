package toolcall

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/output"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/jobspec"
)

// observation is what one pass sees of a call. Nothing changes it afterwards.
type observation struct {
	// name is the call's. call is nil when there is none.
	name types.NamespacedName
	call *v1alpha1.ToolCall
	times
	// held says that runners have calls of the name which are gone: all but the one that the API server has, whose UID this
	// is; empty when it has none. nil says that they have no others.
	held *types.UID

	// job is the call's Job, nil when there is none. foreignJob is the name of one that stands in its place and that
	// the operator didn't make for the call.
	job        *batchv1.Job
	foreignJob string
	// decision is what was decided about the call, nil before that.
	decision *decide.Decision
	// runner is the connected runner of the call: the one that is recorded, or else the one of the call's Job.
	runner *dispatch.Runner
	// result is what the recorded runner reported and nobody acknowledged.
	result *wire.Result
	// queued says that the call waits for a place in its environment.
	queued bool
	// session is what there is to know of the session that the call names; nil when it names none.
	session *inSession
}

// isHandedOver says that somebody may have started the call: a runner that the call records, or its session's.
func (o *observation) isHandedOver() bool {
	return o.isBound() || o.session != nil && o.session.handedOver
}

// keyHash is the key of the process that may report the call's result; empty when there is none.
func (o *observation) keyHash() string {
	switch {
	case o.isBound():
		return o.call.Status.Runner.KeyHash
	case o.session != nil && o.session.Host != nil:
		return o.session.Session.Status.Runner.KeyHash
	default:
		return ""
	}
}

// isBound says that it is recorded which runner has the call: its command may have started.
func (o *observation) isBound() bool { return o.call.Status.Runner != nil }

// isUnassigned says that the recorded runner is connected and was given no call: its command has not started.
func (o *observation) isUnassigned() bool {
	if !o.isBound() || o.runner == nil {
		return false
	}
	owner, hasBegun := o.runner.Owner()
	return !hasBegun || owner.UID == string(o.call.UID) && o.runner.Taken() == 0
}

// observe gathers what a pass looks at.
func (r *observer) observe(ctx context.Context, name types.NamespacedName) (*observation, error) {
	o := &observation{name: name, times: times{now: r.Clock.Now(), heard: r.Hub.Since()}}
	call, err := r.find(ctx, name)
	if err != nil || call == nil {
		return o, err
	}
	o.call = call
	o.created = firstSeen(call.CreationTimestamp.Time, o.now)
	if err := r.observeHeld(ctx, o); err != nil {
		return nil, err
	}
	if call.Spec.SessionRef != nil {
		return o, r.observeSession(ctx, o)
	}
	return o, r.observeOwnPod(ctx, o)
}

// observeHeld asks whether runners have calls of this name that are gone. That is read past the cache: the one that it
// shows may be the one that is gone.
func (r *observer) observeHeld(ctx context.Context, o *observation) error {
	if !r.Hub.HoldsOther(o.name.Namespace, o.name.Name, string(o.call.UID)) {
		return nil
	}
	now, err := r.Objects.LiveCall(ctx, o.name)
	if err != nil {
		return err
	}
	o.held = new(types.UID)
	if now != nil {
		*o.held = now.UID
	}
	return nil
}

// observeOwnPod looks for the runner and the Job of a call that names no session.
func (r *observer) observeOwnPod(ctx context.Context, o *observation) error {
	call := o.call
	if isQueued(call) {
		// It was seen before: a wait of less than a second counts, too.
		o.created = call.CreationTimestamp.Time
	}
	if bound := call.Status.Runner; bound != nil {
		if err := r.observeRunner(ctx, o, bound); err != nil {
			return err
		}
	}
	if call.Status.Phase.Terminal() {
		return nil
	}
	o.queued = isQueued(call) && r.Queue.IsWaiting(o.name, call.UID)
	return r.observeJob(ctx, o)
}

// firstSeen makes up for creation times that have whole seconds.
func firstSeen(created, now time.Time) time.Time {
	if now.Sub(created) > time.Second {
		return created
	}
	return now
}

// observeRunner looks for the runner that is recorded, and for what it reported.
func (r *observer) observeRunner(ctx context.Context, o *observation, bound *v1alpha1.RunnerBinding) error {
	o.runner = r.Hub.RunnerByKey(bound.KeyHash)
	o.result = r.Hub.Result(bound.KeyHash, string(o.call.UID))
	sealed, err := r.Objects.SealedDecision(ctx, o.call)
	if err != nil {
		return err
	}
	if decision, ok := jobspec.UnsealDecision(r.Identity, sealed, sealContext(o.call, bound)...); ok {
		o.decision, o.created = decision, decision.Created()
	}
	return nil
}

func (r *observer) observeJob(ctx context.Context, o *observation) error {
	job, err := r.Objects.Job(ctx, types.NamespacedName{Namespace: o.call.Namespace, Name: jobName(o.call)})
	if err != nil || job == nil {
		return err
	}
	r.takeJob(o, job)
	return nil
}

// takeJob has the pass go on with a Job of the call's name, and with the decision that it keeps.
func (r *observer) takeJob(o *observation, job *batchv1.Job) {
	if o.isBound() {
		o.job = job
		return
	}
	decision, ours := jobspec.ReadDecision(job, o.call, r.Identity)
	if !ours {
		o.foreignJob = job.Name
		return
	}
	o.job, o.decision, o.created = job, decision, decision.Created()
	o.runner = r.Hub.Runner(string(job.UID))
}

// jobName is the Job that is recorded, or else the one that a cold start makes.
func jobName(call *v1alpha1.ToolCall) string {
	if call.Status.Job != "" {
		return call.Status.Job
	}
	return jobspec.Name(call)
}

// find returns a call that is in flight from the cache, and one that has ended from memory or, when somebody else ended
// it or longer ago, from the API server; nil when there is none.
func (r *observer) find(ctx context.Context, key types.NamespacedName) (*v1alpha1.ToolCall, error) {
	call := &v1alpha1.ToolCall{}
	err := r.Objects.Get(ctx, key, call)
	ended := r.finished.get(key)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, err
	case ended != nil && (err != nil || ended.UID == call.UID) && output.IsStoring(&ended.Status):
		// What became of its output somebody else writes.
		return r.Objects.LiveCall(ctx, key)
	case ended != nil && (err != nil || ended.UID == call.UID):
		return ended, nil
	case err == nil:
		return call, nil
	}
	return r.Objects.LiveCall(ctx, key)
}

// sealContext is where a decision in a call's status counts: for this call, with this runner.
func sealContext(call *v1alpha1.ToolCall, bound *v1alpha1.RunnerBinding) []string {
	return []string{"call", call.Namespace, call.Name, string(call.UID), bound.PodUID, bound.KeyHash}
}

// isQueued says that the call's status says that it waits for a place.
func isQueued(call *v1alpha1.ToolCall) bool {
	started := meta.FindStatusCondition(call.Status.Conditions, v1alpha1.ConditionStarted)
	return started != nil && started.Reason == v1alpha1.ReasonQueued
}
