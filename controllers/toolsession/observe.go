package toolsession

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
)

// observation is what one pass sees of a session. Nothing changes it afterwards.
type observation struct {
	session *v1alpha1.ToolSession
	now     time.Time
	// created is when the session was created, as well as the operator can know.
	created time.Time
	// heard is since when runners can reach this operator; what came before it can't have heard of.
	heard time.Time

	// job is the Job of the session's pod, nil when there is none. foreignJob is the name of one that stands in its place
	// and that the operator didn't make for the session.
	job        *batchv1.Job
	foreignJob string
	// leftover is the Job of a pod that nobody has any more: the pass that was to delete it was cut short.
	leftover *batchv1.Job
	// origin is what the session begins with, nil before that is decided.
	origin *decide.Origin
	// runner is the connected runner of the session: the one that is recorded, or else the one of the session's Job.
	runner *dispatch.Runner
	// calls are those of the session that have not ended.
	calls calls
}

// calls counts the calls of a session that have not ended: all, those but servers and watchers that were found to be of who may use the
// session, and those that were and wait for the session.
type calls struct{ total, allowed, waiting int }

// isBound says that a process is recorded which the session's calls are handed to, and that it may still have some.
func (o *observation) isBound() bool {
	return o.session.Status.Runner != nil && o.session.Status.Pod != ""
}

// hasWorkspace says that the session's files outlive its pod.
func (o *observation) hasWorkspace() bool { return o.session.Spec.Workspace != nil }

func (o *observation) key() types.NamespacedName { return client.ObjectKeyFromObject(o.session) }

// observe gathers what a pass looks at; nil when the session is gone.
func (r *observer) observe(ctx context.Context, key types.NamespacedName) (*observation, error) {
	session := &v1alpha1.ToolSession{}
	err := r.Objects.Get(ctx, key, session)
	switch {
	case apierrors.IsNotFound(err):
		return nil, r.checkGone(ctx, key)
	case err != nil:
		return nil, err
	case r.Earlier.IsBehind(session):
		return nil, ErrBehind
	}
	o := &observation{session: session, now: r.Clock.Now(), heard: r.Hub.Since()}
	o.created = session.CreationTimestamp.Time
	if o.now.Sub(o.created) <= time.Second {
		// It has whole seconds.
		o.created = o.now
	}
	if err := r.observeCalls(ctx, o); err != nil {
		return nil, err
	}
	if o.origin, err = originOf(ctx, r.Objects, r.Identity, session); err != nil {
		return nil, err
	}
	if o.isBound() {
		o.runner = r.Hub.RunnerByKey(session.Status.Runner.KeyHash)
	}
	return o, r.observeJob(ctx, o)
}

// checkGone asks past the cache whether a session is gone that the cache hasn't: its process must not be told to end because
// the cache of a new leader is behind.
func (r *observer) checkGone(ctx context.Context, key types.NamespacedName) error {
	found, err := r.Objects.FindLive(ctx, key, &v1alpha1.ToolSession{})
	if found {
		return ErrBehind
	}
	return err
}

// observeCalls counts the session's calls.
func (r *observer) observeCalls(ctx context.Context, o *observation) error {
	list, err := r.Objects.CallsOfSession(ctx, o.session)
	if err != nil {
		return err
	}
	for i := range list {
		call := &list[i]
		o.calls.total++
		if !isAllowed(call) {
			continue
		}
		if !call.Spec.Background {
			o.calls.allowed++
		}
		if call.Status.Phase != v1alpha1.PhaseRunning {
			o.calls.waiting++
		}
	}
	return nil
}

func (r *observer) observeJob(ctx context.Context, o *observation) error {
	name := o.session.Status.Job
	if name == "" {
		name = jobspec.SessionJobName(o.session, o.session.Status.Incarnation+1)
	}
	job, err := r.Objects.Job(ctx, types.NamespacedName{Namespace: o.session.Namespace, Name: name})
	if err != nil {
		return err
	}
	if job != nil {
		r.takeJob(o, job)
	}
	return r.observeLeftover(ctx, o)
}

// observeLeftover looks for the Job of the last pod of a session that has none. A pod that was taken from a pool belongs to
// a session without a claim, which ends with it.
func (r *observer) observeLeftover(ctx context.Context, o *observation) error {
	if o.isBound() || o.session.Status.Incarnation == 0 || o.session.Status.Phase == v1alpha1.SessionEnded {
		return nil
	}
	name := types.NamespacedName{Namespace: o.session.Namespace, Name: jobspec.SessionJobName(o.session, o.session.Status.Incarnation)}
	job, err := r.Objects.Job(ctx, name)
	if err != nil || job == nil || job.DeletionTimestamp != nil || !metav1.IsControlledBy(job, o.session) {
		return err
	}
	o.leftover = job
	return nil
}

// takeJob has the pass go on with a Job of the session's name, and with what it says that the session begins with.
func (r *observer) takeJob(o *observation, job *batchv1.Job) {
	if o.isBound() {
		o.job = job
		return
	}
	origin, ours := jobspec.ReadOrigin(job, o.session, r.Identity)
	if !ours {
		o.foreignJob = job.Name
		return
	}
	o.job, o.origin = job, origin
	o.runner = r.Hub.Runner(string(job.UID))
	if created, ok := jobspec.SessionCreated(job); ok && o.session.Status.Incarnation == 0 {
		o.created = created
	}
}

// sealContext is where what a session began with counts: for this session, with this runner.
func sealContext(session *v1alpha1.ToolSession, bound *v1alpha1.RunnerBinding) []string {
	return []string{"session", session.Namespace, session.Name, string(session.UID), bound.PodUID, bound.KeyHash}
}

// heardUntil is a deadline, but never before the runners could be heard.
func (o *observation) heardUntil(deadline time.Time) time.Time {
	return host.HeardUntil(o.heard, o.now, deadline)
}

// since is since when a condition is as it is; the session's creation when it isn't there.
func (o *observation) since(kind string) time.Time {
	if c := meta.FindStatusCondition(o.session.Status.Conditions, kind); c != nil {
		return c.LastTransitionTime.Time
	}
	return o.created
}

// lifetimeEnds is when the session ends at the latest.
func (o *observation) lifetimeEnds() time.Time {
	return o.session.CreationTimestamp.Add(o.session.MaxLifetime())
}
