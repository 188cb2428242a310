package toolcall

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/queue"
)

// place decides about a call and gives it a host.
func (r *Reconciler) place(ctx context.Context, o *observation) (effects, error) {
	if o.foreignJob != "" {
		return effects{status: o.fail(v1alpha1.ReasonPodRejected, foreignJobMessage(o.foreignJob))}, nil
	}
	j, otherwise, err := r.judge(ctx, o)
	if err != nil || otherwise != nil {
		return ptr.Deref(otherwise, effects{}), err
	}
	o = j.observation
	asked, err := r.requestApproval(ctx, j)
	if err != nil || asked != nil {
		return ptr.Deref(asked, effects{}), err
	}
	admitted, err := r.admit(ctx, o)
	if err != nil || admitted != nil {
		return ptr.Deref(admitted, effects{}), err
	}
	return r.placeOnHost(ctx, o, j.whole)
}

// judged is the observation of a call that may run.
type judged struct {
	*observation
	// whole is the call with its input, snapshot what was decided by.
	whole    *v1alpha1.ToolCall
	snapshot *decide.Snapshot
}

// judge counts a call as pending and decides about it; otherwise is what is to be done when it may not run, or not yet.
func (r *Reconciler) judge(ctx context.Context, o *observation) (j *judged, otherwise *effects, err error) {
	if over := reservePending(r.Queue, o.call); over != nil {
		return nil, &effects{status: o.refuse(over)}, nil
	}
	if over, err := r.overBudget(ctx, o, queue.PendingBytes); err != nil || over != nil {
		return nil, over, err
	}
	whole, err := r.Objects.Whole(ctx, o.call)
	if err != nil {
		return nil, nil, err
	}
	snapshot, decision, err := r.decide(ctx, o, whole)
	var refusal *decide.Refusal
	var open *decide.Undecided
	switch {
	case errors.As(err, &refusal):
		otherwise = &effects{status: o.withAction(whole).refuse(refusal)}
	case errors.As(err, &open) && errors.Is(open, decide.ErrNotBegun):
		otherwise = o.withAction(whole).notBegun()
	case errors.As(err, &open):
		otherwise = ptr.To(o.postpone(ctx, open))
	}
	if err != nil {
		if otherwise != nil {
			err = nil
		}
		return nil, otherwise, err
	}
	decision.CreatedMicroseconds = o.created.UnixMicro()
	decision.AcceptedMicroseconds = acceptedAt(o).UnixMicro()
	return &judged{observation: o.decided(whole, decision), whole: whole, snapshot: snapshot}, nil, nil
}

// acceptedAt is when the call was first found to be allowed; it may have waited for a place since.
func acceptedAt(o *observation) time.Time {
	if t := o.call.Status.Timings; t != nil && t.AcceptedMilliseconds != nil {
		return o.created.Add(time.Duration(*t.AcceptedMilliseconds) * time.Millisecond)
	}
	return o.now
}

func foreignJobMessage(job string) string {
	return fmt.Sprintf("a Job named %s is there already, and the operator didn't make it for this call, or somebody changed its pod: delete the Job and create the call again", job)
}

// decide takes a snapshot and decides.
func (r *decider) decide(ctx context.Context, o *observation, call *v1alpha1.ToolCall) (*decide.Snapshot, *decide.Decision, error) {
	var session *v1alpha1.ToolSession
	if o.session != nil {
		session = o.session.Session
	}
	s, err := r.snapshots.Place(ctx, call, session)
	if err != nil {
		return nil, nil, err
	}
	if err := r.snapshots.Rules(ctx, s); err != nil {
		return nil, nil, err
	}
	if err := r.snapshots.Requester(ctx, s); err != nil {
		return nil, nil, err
	}
	decision, err := r.snapshots.Decide(ctx, s)
	return s, decision, err
}

// How long to wait before a question is asked again: half of the time that it is open already, within these.
const (
	soonestRetry = 500 * time.Millisecond
	latestRetry  = 10 * time.Second
)

func retryAfter(open time.Duration) time.Duration {
	return max(soonestRetry, min(latestRetry, open/2))
}

// postpone has a question asked again for as long as the call may wait for its start, and then ends the call.
func (o *observation) postpone(ctx context.Context, open *decide.Undecided) effects {
	ctrl.LoggerFrom(ctx).Error(open.Cause, "A guard could not decide")
	since := undecidedSince(o.call, o.now)
	left := o.heardUntil(since.Add(time.Duration(decide.StartTimeoutSeconds(open.Environment)) * time.Second)).Sub(o.now)
	if left <= 0 {
		return effects{status: o.refuse(open.Otherwise)}
	}
	return effects{status: o.undecided(), wake: min(left, retryAfter(o.now.Sub(since)))}
}

// undecidedSince is since when nobody answers. A call that waited for its session wasn't asked about before.
func undecidedSince(call *v1alpha1.ToolCall, now time.Time) time.Time {
	started := meta.FindStatusCondition(call.Status.Conditions, v1alpha1.ConditionStarted)
	if started == nil || !call.IsUndecided() {
		return now
	}
	return started.LastTransitionTime.Time
}

// admit lets a decided call pass, or says what it waits for.
func (r *Reconciler) admit(ctx context.Context, o *observation) (*effects, error) {
	env := o.decision.In
	if env.Spec.Suspend {
		// The environment's next change has the call looked at again.
		return &effects{status: o.suspended(env.Name), leaveQueue: true}, nil
	}
	if over, err := r.overBudget(ctx, o, queue.Calls); err != nil || over != nil {
		if over != nil {
			over.leaveEnvironment = true
		}
		return over, err
	}
	limit := maxConcurrent(env)
	if r.Queue.Admit(client.ObjectKeyFromObject(env), limit, holderOf(o.call)) {
		return nil, nil
	}
	return &effects{status: o.pending(v1alpha1.ReasonQueued, fmt.Sprintf("the environment runs at most %d calls at the same time (maxConcurrentCalls): the call waits for its turn", limit))}, nil
}

// suspended says that the call waits until its environment is resumed.
func (o *observation) suspended(environment string) *v1alpha1.ToolCallStatus {
	return o.pending(v1alpha1.ReasonEnvironmentSuspended, fmt.Sprintf("ExecutionEnvironment %q is suspended: the call waits until its spec.suspend is false", environment))
}

// placeOnHost gives the call a waiting host, or else has its own Job made.
func (r *Reconciler) placeOnHost(ctx context.Context, o *observation, whole *v1alpha1.ToolCall) (effects, error) {
	runner, err := r.claimWaiting(o, whole)
	if err != nil {
		return effects{}, err
	}
	var turnedAway []message
	if runner != nil {
		job, err := host.WaitingJob(ctx, r.Objects, o.call.Namespace, runner)
		if err != nil {
			return effects{}, err
		}
		isWaiting := runner.IsWaiting()
		if job != nil && isWaiting {
			return r.bindTo(ctx, o, whole, job, runner)
		}
		r.Hosts.Release(string(o.call.UID))
		if isWaiting {
			turnedAway = []message{{to: runner, refuse: "the pod's Job is gone"}}
		}
	}
	job, err := jobspec.Build(jobspec.Input{Call: whole, Decision: o.decision, Runtime: r.Runtime, Sealer: r.Identity})
	if err != nil {
		return effects{status: o.fail(v1alpha1.ReasonInvalidEnvironment, err.Error())}, nil
	}
	e := o.launch(job)
	e.messages = turnedAway
	return e, nil
}

// claimWaiting claims a runner of the environment's pool; nil when there is none for the call. A queue that the call chooses hasn't
// admitted what waits.
func (r *Reconciler) claimWaiting(o *observation, whole *v1alpha1.ToolCall) (*dispatch.Runner, error) {
	d := o.decision
	if jobspec.ChosenQueue(d.In, whole) != "" {
		return nil, nil
	}
	need := host.Need{Environment: d.In, Default: d.Default, Policy: d.Policy, Blocklist: d.Plan.Blocklist, Refs: d.Refs, Runtime: r.Runtime}
	return r.Hosts.ClaimFitting(need, host.Claimant{Kind: wire.KindCall, NamespacedName: o.name}, string(whole.UID))
}

// acceptWait is for how long a call that was accepted may not say so: most have started by then, and both are one
// write. What was decided is kept in the Job meanwhile.
const acceptWait = time.Second

// launch creates the call's Job. Its status waits for the start, unless the call has said something already or a queue
// holds its Job back.
func (o *observation) launch(job *batchv1.Job) effects {
	e := effects{create: job, credential: job, decided: o, wake: acceptWait}
	if len(o.call.Status.Conditions) > 0 || jobspec.IsSuspended(job) {
		e.status = o.withJob(job).accepted()
	}
	return e
}

// bindTo records which runner has the call, and only then hands the call to it.
func (r *Reconciler) bindTo(ctx context.Context, o *observation, whole *v1alpha1.ToolCall, job *batchv1.Job, runner *dispatch.Runner) (effects, error) {
	hello := runner.Hello()
	bound := &v1alpha1.RunnerBinding{PodUID: hello.PodUID, KeyHash: runner.KeyHash()}
	var err error
	if bound.Decision, err = jobspec.Seal(r.Identity, o.decision, sealContext(o.call, bound)...); err != nil {
		return effects{status: o.fail(v1alpha1.ReasonInvalidEnvironment, err.Error())}, nil
	}
	assignment, err := r.assignment(ctx, o.decision, whole)
	if err != nil {
		return o.cannotAssign(ctx, err)
	}
	e := effects{
		status:   o.withJob(job).running(bound, hello, host.PathOf(job)),
		messages: []message{{to: runner, assign: assignment}},
		release:  true,
	}
	if jobspec.PoolOf(job) != "" || o.startedLate(job) {
		e.wake = adoptWait
	}
	return e, nil
}

// createFailed says what follows when the API server didn't take the call's Job, or, with a job, the Secret with the token of its pod. The
// Job isn't recorded before the Secret is there, so that the next pass tries again.
func (o *observation) createFailed(ctx context.Context, what string, job *batchv1.Job, cause error) (e effects) {
	if job != nil {
		e.remove = []*batchv1.Job{job}
	}
	if apicache.IsRefused(cause) {
		e.status = o.withJob(job).fail(v1alpha1.ReasonPodRejected, fmt.Sprintf("the API server refused %s: %v", what, cause))
		return e
	}
	reason, why := host.WhyNotCreated(ctx, what, cause)
	limit := o.decision.StartTimeout()
	left, pause := leftForStart(o)
	if job != nil && jobspec.IsSuspended(job) {
		left = limit // no time limit runs while a queue holds the Job back
	}
	if left <= 0 {
		e.status = o.withJob(job).fail(v1alpha1.ReasonPodRejected, fmt.Sprintf("within %s the API server did not take %s: %v", limit, what, cause))
		return e
	}
	return effects{status: o.withJob(nil).notStarted(reason, why), wake: min(left, pause)}
}

// leftForStart is how much longer a call may wait for what keeps it from its start, and after which pause that is tried again.
func leftForStart(o *observation) (left, pause time.Duration) {
	since := o.now
	if c := meta.FindStatusCondition(o.call.Status.Conditions, v1alpha1.ConditionStarted); c != nil && c.Reason == v1alpha1.ReasonNotStarted {
		since = c.LastTransitionTime.Time
	}
	if accepted := o.decision.Accepted(); since.Before(accepted) {
		// Until then the call waited for an answer about its requester.
		since = accepted
	}
	return o.heardUntil(since.Add(o.decision.StartTimeout())).Sub(o.now), retryAfter(o.now.Sub(since))
}

// cannotAssign has a call wait whose runner can't be told which addresses are the cluster's, for as long as the call may wait for its
// start. A waiting runner is let go meanwhile. Any other error is the pass's.
func (o *observation) cannotAssign(ctx context.Context, cause error) (effects, error) {
	if _, is := errors.AsType[*unknownClusterError](cause); !is {
		return effects{}, cause
	}
	ctrl.LoggerFrom(ctx).Error(cause, "A call can't be handed over yet")
	lacks := &host.Problem{Reason: v1alpha1.ReasonNotStarted, Message: cause.Error()}
	left, pause := leftForStart(o)
	if left <= 0 {
		late := host.StartTimeout("the command", o.decision.StartTimeoutSeconds, lacks)
		return effects{status: o.fail(late.Reason, late.Message), remove: host.Deletable(o.job), release: true}, nil
	}
	return effects{status: o.notStarted(lacks.Reason, lacks.Message), release: true, wake: min(left, pause)}, nil
}

// maxConcurrent is how many calls of an environment may run at the same time, 0 for any number.
func maxConcurrent(env *v1alpha1.ExecutionEnvironment) int {
	return int(ptr.Deref(env.Spec.MaxConcurrentCalls, 0))
}
