package toolcall

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/jobspec"
)

// observation is what one pass sees of a call. Nothing changes it afterwards.
type observation struct {
	call *v1alpha1.ToolCall
	now  time.Time
	// created is when the call was created, as well as the operator can know.
	created time.Time
	// heard is since when runners can reach this operator; what came before it can't have heard of.
	heard time.Time

	// job is the call's Job, nil when there is none. foreignJob is the name of one that stands in its place and that
	// the operator didn't make for the call.
	job        *batchv1.Job
	foreignJob string
	// decision is what was decided about the call, nil before that.
	decision *decide.Decision
	// runner is the connected runner of the call: the one that is recorded, or else the one of the call's Job.
	runner *dispatch.Session
	// result is what the recorded runner reported and nobody acknowledged.
	result *wire.Result
	// claimed is a waiting runner that the call claimed and that isn't recorded.
	claimed *dispatch.Session
	// queued says that the call waits for a place in its environment.
	queued bool
	// session is what there is to know of the session that the call names; nil when it names none.
	session *inSession
}

func (o *observation) key() types.NamespacedName { return client.ObjectKeyFromObject(o.call) }

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

// isUnassigned says that the recorded runner is connected and has no call: its command has not started.
func (o *observation) isUnassigned() bool {
	return o.isBound() && o.runner != nil && o.runner.IsWaiting()
}

// observe gathers what a pass looks at; nil when the call is gone.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*observation, error) {
	call, err := r.find(ctx, key)
	if err != nil || call == nil {
		return nil, err
	}
	o := &observation{call: call, now: r.Clock.Now(), heard: r.Hub.Since(), claimed: r.Hosts.Claimed(string(call.UID))}
	o.created = firstSeen(call.CreationTimestamp.Time, o.now)
	if call.Spec.SessionRef != nil {
		return o, r.observeSession(ctx, o)
	}
	if seen, ok := r.Queue.FirstSeen(key, call.UID); ok {
		o.created = seen
	}
	if bound := call.Status.Runner; bound != nil {
		if err := r.observeRunner(ctx, o, bound); err != nil {
			return nil, err
		}
	}
	if call.Status.Phase.Terminal() {
		return o, nil
	}
	o.queued = isQueued(call) && r.Queue.IsWaiting(key, call.UID)
	return o, r.observeJob(ctx, o)
}

// firstSeen makes up for creation times that have whole seconds.
func firstSeen(created, now time.Time) time.Time {
	if now.Sub(created) > time.Second {
		return created
	}
	return now
}

// observeRunner looks for the runner that is recorded, and for what it reported.
func (r *Reconciler) observeRunner(ctx context.Context, o *observation, bound *v1alpha1.RunnerBinding) error {
	o.runner = r.Hub.SessionByKey(bound.KeyHash)
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

func (r *Reconciler) observeJob(ctx context.Context, o *observation) error {
	job, err := r.Objects.Job(ctx, types.NamespacedName{Namespace: o.call.Namespace, Name: jobName(o.call)})
	if err != nil || job == nil {
		return err
	}
	r.takeJob(o, job)
	return nil
}

// takeJob has the pass go on with a Job of the call's name, and with the decision that it keeps.
func (r *Reconciler) takeJob(o *observation, job *batchv1.Job) {
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
	o.runner = r.Hub.Session(string(job.UID))
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
func (r *Reconciler) find(ctx context.Context, key types.NamespacedName) (*v1alpha1.ToolCall, error) {
	call := &v1alpha1.ToolCall{}
	err := r.Objects.Get(ctx, key, call)
	ended := r.finished.get(key)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, err
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
