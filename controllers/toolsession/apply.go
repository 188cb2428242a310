package toolsession

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
)

// apply carries the effects out.
func (r *Reconciler) apply(ctx context.Context, o *observation, e effects) (result ctrl.Result, err error) {
	if e.letIn != nil {
		defer e.letIn()
	}
	if e.paused {
		runner := o.runner
		defer func() {
			if err != nil {
				runner.Unpause()
			}
		}()
	}
	if e.hold {
		var err error
		if o, err = r.hold(ctx, o); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	if e, err = r.create(ctx, o, e); err != nil {
		return ctrl.Result{}, err
	}
	o, err = r.writeStatus(ctx, o, e.status)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if e.letIn != nil {
		e.letIn()
	}
	r.follow(o, &e)
	r.leaveBudgets(o, &e)
	if e.holdLater {
		if o, err = r.hold(ctx, o); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	if err := errors.Join(r.changeJobs(ctx, o, &e), r.remove(ctx, o, &e)); err != nil {
		return ctrl.Result{}, err
	}
	if e.release {
		r.Hosts.Release(string(o.session.UID))
	}
	if e.letGo {
		if err := r.letGo(ctx, o); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: e.wake}, nil
}

// hold puts the finalizer on the session, before anything is made for it. It returns the observation of the session as it
// is then.
func (r *applier) hold(ctx context.Context, o *observation) (*observation, error) {
	if o.session.IsHeld() || o.session.DeletionTimestamp != nil {
		return o, nil
	}
	next := *o
	next.session = o.session.DeepCopy()
	next.session.Finalizers = append(next.session.Finalizers, v1alpha1.SessionFinalizer)
	held := next.session.DeepCopy()
	if err := r.Client.Patch(ctx, held, client.MergeFromWithOptions(o.session, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("hold the session: %w", err)
	}
	next.session.ResourceVersion = held.ResourceVersion
	return &next, nil
}

// letGo takes the finalizer away.
func (r *applier) letGo(ctx context.Context, o *observation) error {
	if !o.session.IsHeld() {
		return nil
	}
	now := &v1alpha1.ToolSession{}
	if err := r.Objects.Live.Get(ctx, o.key(), now); err != nil || now.UID != o.session.UID {
		return client.IgnoreNotFound(err)
	}
	free := now.DeepCopy()
	free.Finalizers = slices.DeleteFunc(free.Finalizers, func(name string) bool { return name == v1alpha1.SessionFinalizer })
	patch := client.MergeFromWithOptions(now, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, free, patch, client.DisableReadYourWritesConsistency); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("let the session's name go: %w", err)
	}
	return nil
}

// create makes what is to be there before the status says so. Where the API server doesn't take it, other effects follow.
func (r *applier) create(ctx context.Context, o *observation, e effects) (effects, error) {
	if e.claim != nil {
		if err := r.createClaim(ctx, o, e.claim); err != nil {
			return e.from.createFailed(ctx, "the workspace's PersistentVolumeClaim", nil, err), nil
		}
	}
	if e.create != nil {
		err := r.Client.Create(ctx, e.create)
		switch {
		case apierrors.IsAlreadyExists(err):
			return r.foundJob(ctx, o, e.create)
		case err != nil:
			return e.from.createFailed(ctx, "the session's Job", nil, err), nil
		}
	}
	if e.credential != nil {
		if err := host.CreateCredential(ctx, r.Client, r.Identity, e.credential); err != nil {
			return e.from.createFailed(ctx, "the Secret with the token of the session's pod", e.credential, err), nil
		}
	}
	return e, nil
}

var errForeignClaim = apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim").GroupKind(), "", nil)

// createClaim makes the session's claim, unless it is there.
func (r *applier) createClaim(ctx context.Context, o *observation, claim *corev1.PersistentVolumeClaim) error {
	err := r.Client.Create(ctx, claim, client.DisableReadYourWritesConsistency)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	there, err := r.liveClaim(ctx, o)
	if err == nil && there != nil && (!jobspec.IsClaimOf(there, o.session) || there.DeletionTimestamp != nil) {
		return fmt.Errorf("a claim named %s is there already, and isn't this session's: %w", claim.Name, errForeignClaim)
	}
	return err
}

// liveClaim is the claim of the session's name; nil when there is none. No cache has claims.
func (r *Options) liveClaim(ctx context.Context, o *observation) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	err := r.Objects.Live.Get(ctx, types.NamespacedName{Namespace: o.session.Namespace, Name: jobspec.ClaimName(o.session)}, claim)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get the session's claim: %w", err)
	}
	return claim, nil
}

// foundJob is what follows when there is a Job of the name already.
func (r *applier) foundJob(ctx context.Context, o *observation, job *batchv1.Job) (effects, error) {
	isTaken, err := host.IsTaken(ctx, r.Objects, job, func(there *batchv1.Job) bool {
		_, ours := jobspec.ReadOrigin(there, o.session, r.Identity)
		return ours
	})
	switch {
	case err != nil:
		return effects{}, err
	case isTaken:
		next := *o
		next.foreignJob = job.Name
		return next.noPod(v1alpha1.ReasonPodRejected, next.foreignJobMessage(), nil), nil
	default:
		return effects{wake: apicache.Lag}, nil
	}
}

// writeStatus writes the status if it changed, and says what became true by that. It returns the observation of the session as
// it is then, but for its status.
func (r *applier) writeStatus(ctx context.Context, o *observation, status *v1alpha1.ToolSessionStatus) (*observation, error) {
	if status == nil || equality.Semantic.DeepEqual(&o.session.Status, status) {
		return o, nil
	}
	written := o.session.DeepCopy()
	written.Status = *status
	if bound := o.session.Status.Runner; bound != nil && written.Status.Phase != o.session.Status.Phase {
		if ended := r.Hub.LastCallEnded(bound.KeyHash); !ended.IsZero() {
			written.Status.LastCallTime = ptr.To(metav1.NewTime(ended))
		}
	}
	after := written.DeepCopy()
	patch := client.MergeFromWithOptions(o.session, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, written, patch); err != nil {
		return nil, fmt.Errorf("write the session's status: %w", err)
	}
	r.announce(o, after)
	next := *o
	next.session = o.session.DeepCopy()
	next.session.ResourceVersion = written.ResourceVersion
	return &next, nil
}

// follow tells the runners, and the rest of the operator.
func (r *applier) follow(o *observation, e *effects) {
	for _, m := range e.messages {
		m.deliver()
		if m.begin != nil {
			r.SessionQueue.Wake(o.key(), true, true)
		}
	}
	if e.forgetKey != "" {
		r.Hub.Forget(e.forgetKey)
	}
	r.judgeEnvironment(o, e)
}

// judgeEnvironment has the environment say whether pods start in it, and on which nodes. Later pods of a session are made from the
// environment as it was.
func (r *applier) judgeEnvironment(o *observation, e *effects) {
	if hadPod(o.session) || o.origin == nil || e.hello == nil && e.problem == nil {
		return
	}
	env := types.NamespacedName{Namespace: o.session.Namespace, Name: o.origin.Effective().Name}
	if e.hello != nil {
		r.Nodes.Add(env, *e.hello, o.now)
	} else if !r.Nodes.SetProblem(env, e.problem) {
		return
	}
	r.Pools.Enqueue(env, 0)
}

// changeJobs makes a pool's Job the session's own, or ends a Job's pod.
func (r *applier) changeJobs(ctx context.Context, o *observation, e *effects) error {
	if before := e.adopt; before != nil {
		job := before.DeepCopy()
		jobspec.AdoptForSession(job, o.session, o.now)
		if err := r.Client.Patch(ctx, job, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("make the waiting pod's Job the session's own: %w", err)
		}
		e.release = true
		r.Pools.Enqueue(types.NamespacedName{Namespace: before.Namespace, Name: jobspec.PoolOf(before)}, 0)
	}
	if before := e.expire; before != nil {
		job := before.DeepCopy()
		job.Spec.ActiveDeadlineSeconds = ptr.To(int64(1))
		if err := r.Client.Patch(ctx, job, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("end the session's pod: %w", err)
		}
	}
	return nil
}

// remove deletes what the session doesn't need any more, and the session itself when its time is up.
func (r *applier) remove(ctx context.Context, o *observation, e *effects) error {
	if e.removeClaim != nil {
		err := r.Client.Delete(ctx, e.removeClaim, client.Preconditions{UID: &e.removeClaim.UID}, client.DisableReadYourWritesConsistency)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the session's claim: %w", err)
		}
	}
	if err := host.DeleteJobs(ctx, r.Client, e.remove...); err != nil {
		return err
	}
	if e.removeSession {
		err := r.Client.Delete(ctx, o.session, client.Preconditions{UID: &o.session.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the ended session: %w", err)
		}
	}
	return nil
}
