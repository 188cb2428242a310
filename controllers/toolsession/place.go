package toolsession

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/snapshot"
)

// place decides what the session begins with and gives it a host. A session that has had a pod keeps what it began with.
func (r *Reconciler) place(ctx context.Context, o *observation) (effects, error) {
	if o.foreignJob != "" {
		return o.noPod(v1alpha1.ReasonPodRejected, o.foreignJobMessage(), nil), nil
	}
	if left := o.since(v1alpha1.ConditionReady).Add(nextTry).Sub(o.now); isTriedAgain(o.session) && left > 0 {
		return effects{wake: left}, nil
	}
	if o.session.Status.Runner != nil && o.origin == nil {
		return effects{status: o.failed(v1alpha1.ReasonInvalidEnvironment, "the operator can't read what the session began with, for example because the Secret of its identity was replaced: create another session")}, nil
	}
	lost, err := r.lostFiles(ctx, o)
	if err != nil {
		return effects{}, err
	}
	if lost != "" {
		return effects{status: o.failed(v1alpha1.ReasonPodRejected, lost)}, nil
	}
	s, err := r.readContext(ctx, o)
	if err != nil {
		return effects{}, err
	}
	if o.origin == nil {
		origin, err := decide.Begin(s)
		var refusal *decide.Refusal
		if errors.As(err, &refusal) {
			return effects{status: o.failed(refusal.Reason, refusal.Message)}, nil
		}
		if err != nil {
			return effects{}, err
		}
		o = o.with(origin)
	}
	return r.placeIn(ctx, o, s)
}

// placeIn gives a session a host in its environment, or has it wait. Where that has a limit, nobody else is let in until the status says
// that this one is, and the status comes before the Job: then every session that is in counts, whatever ends a pass on its way. A pass that
// finds another one under way waits without its worker: a slow webhook must not keep the sessions of other namespaces waiting.
func (r *Reconciler) placeIn(ctx context.Context, o *observation, s *decide.SessionSnapshot) (e effects, err error) {
	env := &v1alpha1.ExecutionEnvironment{}
	found, err := r.Objects.Find(ctx, o.environment(), env)
	switch {
	case err != nil:
		return effects{}, err
	case found && env.Spec.Suspend:
		status := o.pending(v1alpha1.ReasonEnvironmentSuspended, fmt.Sprintf("ExecutionEnvironment %q is suspended: the session waits until its spec.suspend is false", env.Name))
		return effects{hold: true, status: status, wake: inDefault(o.session, host.RetryPause)}, nil
	case o.session.Status.Job != "" || !found || env.Spec.Sessions == nil:
		return r.giveHost(ctx, o, s)
	}
	if _, isTaken := r.entering.LoadOrStore(o.environment(), true); isTaken {
		return effects{wake: apicache.Lag}, nil
	}
	letIn := sync.OnceFunc(func() { r.entering.Delete(o.environment()) })
	defer func() {
		if e.letIn == nil { // an error, or a panic
			letIn()
		}
	}()
	if e, err = r.giveHostWithin(ctx, o, s, env); err != nil {
		return effects{}, err
	}
	e.letIn = letIn
	return e, nil
}

// inDefault returns the pause after which a session that waits for the namespace's default environment looks again, because no watch says
// that another environment has become the default. It is 0 for a session that names its environment, or has begun in one.
func inDefault(session *v1alpha1.ToolSession, pause time.Duration) time.Duration {
	if session.Spec.EnvironmentRef != nil || session.Status.Runner != nil {
		return 0
	}
	return pause
}

// giveHostWithin gives a session a host if its environment has a place for it. It takes a waiting one, or says that it will have a Job: the
// next pass makes that.
func (r *Reconciler) giveHostWithin(ctx context.Context, o *observation, s *decide.SessionSnapshot, env *v1alpha1.ExecutionEnvironment) (effects, error) {
	sessions, err := r.Objects.SessionsIn(ctx, o.environment())
	if err != nil {
		return effects{}, err
	}
	if !hasPlace(env, o.session, sessions) {
		wake := inDefault(o.session, wait.Jitter(seldom, 0.5))
		return effects{hold: true, status: o.pending(v1alpha1.ReasonTooManySessions, tooMany(env)), wake: wake}, nil
	}
	e, err := r.giveHost(ctx, o, s)
	if err == nil && e.create != nil {
		e = effects{hold: true, status: e.status, wake: time.Millisecond}
	}
	return e, err
}

// giveHost gives a session a waiting host, or has its Job made, if its budgets let it have a pod.
func (r *Reconciler) giveHost(ctx context.Context, o *observation, s *decide.SessionSnapshot) (effects, error) {
	if over, err := r.overBudget(ctx, o); err != nil || over != nil {
		return ptr.Deref(over, effects{}), err
	}
	e, err := r.claimWaiting(ctx, o, s)
	if err != nil || e != nil {
		return ptr.Deref(e, effects{}), err
	}
	return r.launch(o), nil
}

// foreignJobMessage says what to do about a Job that has the name of the session's own. A session with files gets another
// pod by itself, from a Job with another name.
func (o *observation) foreignJobMessage() string {
	advice := "delete the Job"
	if !hasFiles(o.session) {
		advice += " and create the session again"
	}
	return fmt.Sprintf("a Job named %s is there already, and the operator didn't make it for this session, or somebody changed its pod: %s", o.foreignJob, advice)
}

// with is the observation with what the session begins with.
func (o *observation) with(origin *decide.Origin) *observation {
	next := *o
	next.origin = origin
	return &next
}

// readContext reads what a session begins with. Of one that has begun that is the policy alone, for a waiting pod.
func (r *observer) readContext(ctx context.Context, o *observation) (*decide.SessionSnapshot, error) {
	if o.origin != nil {
		return &decide.SessionSnapshot{Session: o.session, Compile: r.Policies.Compile, Context: o.origin.Context}, nil
	}
	s, err := snapshot.Beginning(ctx, r.Objects, o.session, r.Policies.Compile)
	if err != nil {
		return nil, err
	}
	if env := s.Effective(); env != nil {
		s.Policies, err = r.Objects.Policies(ctx, env)
	}
	return s, err
}

// environment is the name of the one that the session's pods are made from.
func (o *observation) environment() types.NamespacedName {
	return types.NamespacedName{Namespace: o.session.Namespace, Name: o.origin.Effective().Name}
}

// claimWaiting gives a session without a claim a host of the environment's pool; nil when there is none. A session never
// waits for the pool.
func (r *Reconciler) claimWaiting(ctx context.Context, o *observation, s *decide.SessionSnapshot) (*effects, error) {
	env := o.origin.Effective()
	if o.hasWorkspace() || o.session.Status.Job != "" || o.session.Status.Runner != nil || host.PoolSize(s.Effective()) == 0 {
		return nil, nil
	}
	policy, err := s.Policies.For(s.Effective())
	if err != nil {
		return nil, err
	}
	compiled, err := r.Policies.Compile(policy)
	if err != nil {
		return nil, err
	}
	runner, err := r.Hosts.ClaimFitting(host.Need{
		Environment: s.Effective(), Default: s.DefaultEnvironment(), Policy: policy, Blocklist: compiled.EnvBlocklist(),
		Refs: o.origin.Refs, Runtime: r.Runtime,
	}, host.Claimant{Kind: wire.KindSession, NamespacedName: o.key()}, string(o.session.UID))
	if err != nil || runner == nil {
		return nil, err
	}
	job, err := host.WaitingJob(ctx, r.Objects, o.session.Namespace, runner)
	if err != nil {
		return nil, err
	}
	if isWaiting := runner.IsWaiting(); job == nil || !isWaiting {
		// The next pass takes another one.
		e := &effects{hold: true, release: true, wake: time.Millisecond}
		if isWaiting {
			e.messages = []message{{to: runner, refuse: "the pod's Job is gone"}}
		}
		return e, nil
	}
	ctrl.LoggerFrom(ctx).V(1).Info("The session takes a waiting pod", "environment", env.Name, "pod", runner.Hello().Pod)
	e, err := r.bindTo(ctx, o, job, runner)
	return &e, err
}

// launch creates the session's Job, and before the first one its claim.
func (r *Reconciler) launch(o *observation) effects {
	job, err := jobspec.BuildSession(jobspec.SessionInput{
		Session: o.session, Origin: o.origin, Incarnation: o.session.Status.Incarnation + 1, Created: o.created, Runtime: r.Runtime, Sealer: r.Identity,
	})
	if err != nil {
		return effects{status: o.failed(v1alpha1.ReasonInvalidEnvironment, err.Error())}
	}
	e := effects{hold: true, create: job, credential: job, from: o, status: o.starting(job), wake: o.startTimeout()}
	if o.hasWorkspace() && !hadPod(o.session) {
		e.claim = jobspec.BuildClaim(o.session)
	}
	return e
}

func (o *observation) startTimeout() time.Duration {
	return time.Duration(decide.StartTimeoutSeconds(o.origin.Effective())) * time.Second
}

// bindTo records which process takes the session's calls, and only then tells it so. The pod says on which node it is: a
// runner that names a node that isn't there would prove that it is gone.
func (r *Reconciler) bindTo(ctx context.Context, o *observation, job *batchv1.Job, runner *dispatch.Runner) (effects, error) {
	hello := runner.Hello()
	bound := &v1alpha1.RunnerBinding{PodUID: hello.PodUID, KeyHash: runner.KeyHash()}
	var err error
	if bound.Decision, err = jobspec.Seal(r.Identity, o.origin, sealContext(o.session, bound)...); err != nil {
		return effects{status: o.failed(v1alpha1.ReasonInvalidEnvironment, err.Error())}, nil
	}
	pod, err := r.Objects.PodByUID(ctx, types.NamespacedName{Namespace: o.session.Namespace, Name: hello.Pod}, hello.PodUID)
	if err != nil {
		return effects{}, err
	}
	hello.Node = ""
	if pod != nil {
		hello.Node = pod.Spec.NodeName
	}
	e := effects{holdLater: true, status: o.ready(bound, hello, job), hello: &hello}
	e.messages = []message{{to: runner, begin: o.begin(e.status.Incarnation)}}
	if jobspec.PoolOf(job) != "" {
		e.adopt = job
	}
	if before := o.session.Status.Runner; before != nil {
		e.forgetKey = before.KeyHash
	}
	e.wake = o.session.IdleTimeout()
	return e, nil
}

// begin is what makes a runner the session's.
func (o *observation) begin(incarnation int32) *wire.Begin {
	return &wire.Begin{
		Owner: host.OwnerOf(o.session, incarnation), MaxCalls: o.session.MaxCalls(),
		MaxConcurrentCalls: o.session.MaxConcurrentCalls(),
		Home:               homeOf(o.origin),
	}
}

// homeOf is the session's own HOME: a call sees it among its own variables, which don't say where it may write.
func homeOf(origin *decide.Origin) string {
	for _, v := range origin.Env {
		if v.Name == "HOME" {
			return v.Value
		}
	}
	return ""
}

// createFailed says what follows when the API server didn't take the session's claim, Job or Secret. The Job isn't recorded
// before all are there, so that the next pass tries again.
func (o *observation) createFailed(ctx context.Context, what string, job *batchv1.Job, cause error) effects {
	var remove []*batchv1.Job
	if job != nil {
		remove = append(remove, job)
	}
	if apicache.IsRefused(cause) {
		return o.noPod(v1alpha1.ReasonPodRejected, fmt.Sprintf("the API server refused %s: %v", what, cause), remove)
	}
	_, why := host.WhyNotCreated(ctx, what, cause)
	status := o.pending(v1alpha1.ReasonSessionStarting, why)
	if limit := o.startTimeout(); !o.now.Before(o.heardUntil(o.startsFrom().Add(limit))) {
		return o.noPod(v1alpha1.ReasonPodRejected, fmt.Sprintf("within %s the API server did not take %s: %v", limit, what, cause), remove)
	}
	return effects{hold: true, status: status, wake: time.Second}
}
