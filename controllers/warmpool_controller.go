package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
)

// WarmPoolReconciler keeps pods started and waiting for the environments that want it.
type WarmPoolReconciler struct {
	Shared
	Hub      *dispatch.Hub
	Identity *dispatch.Identity
	Runtime  jobspec.Runtime
	State    *PoolState
}

// SetupWithManager registers the controller.
func (r *WarmPoolReconciler) SetupWithManager(mgr ctrl.Manager, signals *Signals) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("warmpool").
		For(&v1alpha1.ExecutionEnvironment{}, notOurs).
		Watches(&v1alpha1.ExecutionPolicy{}, handler.EnqueueRequestsFromMapFunc(r.everyPool)).
		Watches(&v1alpha1.ExecutionEnvironment{}, handler.EnqueueRequestsFromMapFunc(r.neighbours), notOurs).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(r.poolOfJob)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.poolOfPod)).
		WatchesRawSource(signals.Source()).
		Complete(r)
}

func (r *WarmPoolReconciler) everyPool(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.pools(ctx)
}

// neighbours are the pools of a namespace: a default environment's variables are part of every pod in it.
func (r *WarmPoolReconciler) neighbours(ctx context.Context, o client.Object) []reconcile.Request {
	return r.pools(ctx, client.InNamespace(o.GetNamespace()))
}

func (r *WarmPoolReconciler) pools(ctx context.Context, opts ...client.ListOption) []reconcile.Request {
	list := &v1alpha1.ExecutionEnvironmentList{}
	if err := r.List(ctx, list, opts...); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if poolSize(&list.Items[i]) > 0 {
			requests = append(requests, reconcile.Request{NamespacedName: keyOf(&list.Items[i])})
		}
	}
	return requests
}

// poolOfJob maps a Job that belongs to a pool to its environment.
func (r *WarmPoolReconciler) poolOfJob(_ context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range poolOf(o) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
	}
	return requests
}

// poolOfPod maps a pod of a pool to its environment, by the annotation that its template carries.
func (r *WarmPoolReconciler) poolOfPod(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetAnnotations()[jobspec.AnnotationPool]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// pool is one look at an environment's waiting pods.
type pool struct {
	env      *v1alpha1.ExecutionEnvironment
	template jobspec.WarmInput
	hash     string
	now      time.Time
	size     int
	// alive counts the pods that wait or will.
	alive int
	wake  time.Duration
}

// Reconcile brings the number of waiting pods to what the environment wants.
func (r *WarmPoolReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	jobs := &batchv1.JobList{}
	if err := r.List(ctx, jobs, client.InNamespace(req.Namespace), client.MatchingFields{indexPool: req.Name}); err != nil {
		return ctrl.Result{}, fmt.Errorf("list the pool's Jobs: %w", err)
	}
	jobs.Items = slices.DeleteFunc(jobs.Items, func(job batchv1.Job) bool { return !jobspec.Waits(&job, r.Identity) })
	env := &v1alpha1.ExecutionEnvironment{}
	if err := r.Get(ctx, req.NamespacedName, env); apierrors.IsNotFound(err) {
		return r.dissolve(ctx, req.NamespacedName, jobs.Items)
	} else if err != nil {
		return ctrl.Result{}, err
	}
	size := int(poolSize(env))
	if size == 0 && len(jobs.Items) == 0 {
		r.State.forget(env.UID)
		return ctrl.Result{}, nil
	}
	p := &pool{env: env, now: r.Clock.Now(), size: size}
	if err := r.aim(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	for i := range jobs.Items {
		if err := r.tend(ctx, p, &jobs.Items[i]); err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := r.refill(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: p.wake}, nil
}

// dissolve removes what waits for calls in an environment that is gone. A pod that a call was given stays until the
// call has its Job.
func (r *WarmPoolReconciler) dissolve(ctx context.Context, name types.NamespacedName, jobs []batchv1.Job) (ctrl.Result, error) {
	if len(jobs) == 0 {
		return ctrl.Result{}, nil
	}
	err := r.Live.Get(ctx, name, &v1alpha1.ExecutionEnvironment{})
	if err == nil {
		// The cache doesn't have it yet.
		return ctrl.Result{RequeueAfter: cacheLag}, nil
	}
	if !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("look whether the pool's environment is gone: %w", err)
	}
	gone := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	p := &pool{env: gone, now: r.Clock.Now()}
	for i := range jobs {
		if err := r.tend(ctx, p, &jobs[i]); err != nil {
			return ctrl.Result{}, err
		}
		r.State.forget(types.UID(jobs[i].Labels[jobspec.LabelPool]))
	}
	// Until none is there.
	p.wakeIn(lookAgain)
	return ctrl.Result{RequeueAfter: p.wake}, nil
}

// lookAgain is when a pool without an environment is looked at again, if nothing that happens to its Jobs says so.
const lookAgain = 30 * time.Second

// aim works out what the pods are to be made from. With no default environment to be told apart, or no policy
// that can be used, there is nothing that pods could be kept for.
func (r *WarmPoolReconciler) aim(ctx context.Context, p *pool) error {
	fallback, err := r.defaultEnvironment(ctx, p.env.Namespace, false)
	if err == nil {
		var template *poolTemplate
		if template, err = r.poolTemplate(ctx, p.env, fallback, r.Runtime); err == nil {
			p.template = template.WarmInput
			p.hash, err = jobspec.TemplateHash(p.template)
		}
	}
	var unusable *rejection
	if errors.As(err, &unusable) || errors.Is(err, errPolicy) {
		r.State.failed(p.env, err.Error(), p.now)
		p.size = 0
		return nil
	}
	return err
}

// tend looks after one Job of the pool.
func (r *WarmPoolReconciler) tend(ctx context.Context, p *pool, job *batchv1.Job) error {
	if job.DeletionTimestamp != nil || r.Hub.Busy(string(job.UID)) {
		return nil
	}
	pod, err := r.podOf(ctx, job)
	if err != nil {
		return err
	}
	if (pod != nil || jobOver(job)) && !r.Hub.Offered(string(job.UID)) {
		given, err := r.given(ctx, job)
		if err != nil || given {
			return err
		}
	}
	surplus := p.alive >= p.size || job.Annotations[jobspec.AnnotationTemplate] != p.hash || takenAway(pod)
	problem := r.problem(p, job, pod)
	if surplus || problem != "" {
		removed, err := r.remove(ctx, p, job)
		if removed && problem != "" && !surplus {
			r.State.failed(p.env, problem, p.now)
			r.Events.Eventf(p.env, nil, corev1.EventTypeWarning, v1alpha1.ReasonPodsFail, "Refill", "%s", clip(problem, maxNote))
		}
		return err
	}
	p.alive++
	return r.offer(ctx, p, job, pod)
}

// takenAway says that a pod went for a reason that isn't the pool's, with its node for instance: that says nothing about
// the next one, which is made at once. What the kubelet ends, because its node has run short of something, the pool may
// be at fault for.
func takenAway(pod *corev1.Pod) bool {
	if pod == nil || !over(pod) && pod.DeletionTimestamp == nil {
		return false
	}
	by := disruption(pod)
	return by != nil && by.Reason != corev1.PodReasonTerminationByKubelet
}

// given says whether a call that has not ended was given the Job's pod: by an operator before this one, perhaps.
func (r *WarmPoolReconciler) given(ctx context.Context, job *batchv1.Job) (bool, error) {
	calls := &v1alpha1.ToolCallList{}
	err := r.List(ctx, calls, client.InNamespace(job.Namespace), client.MatchingFields{indexJob: job.Name})
	if err != nil {
		return false, fmt.Errorf("look for the call that has a pod: %w", err)
	}
	return len(calls.Items) > 0, nil
}

// offer lets calls take the Job's runner once it is connected and known to be of the Job's pod.
func (r *WarmPoolReconciler) offer(_ context.Context, p *pool, job *batchv1.Job, pod *corev1.Pod) error {
	session := r.Hub.Session(string(job.UID))
	switch {
	case session == nil && suspended(job):
		// What lets it run changes the Job.
	case session == nil:
		p.wakeIn(startsFrom(job).Add(startTimeoutOf(p.env)).Sub(p.now))
	case pod == nil:
		p.wakeIn(cacheLag)
	case string(pod.UID) != session.Hello().PodUID || pod.DeletionTimestamp != nil:
		session.Refuse("the pod is not the one of the pool's Job")
	default:
		r.Hub.Offer(session, p.hash)
		r.State.settled(p.env)
	}
	return nil
}

func (p *pool) wakeIn(d time.Duration) {
	d = max(d, time.Millisecond)
	if p.wake == 0 || d < p.wake {
		p.wake = d
	}
}

// problem says why a Job of the pool will not have a waiting runner; empty when it may.
func (r *WarmPoolReconciler) problem(p *pool, job *batchv1.Job, pod *corev1.Pod) string {
	if found := diagnoseJob(job); found != nil {
		return found.message
	}
	if suspended(job) {
		return ""
	}
	if pod != nil && !fromBefore(pod, job) {
		if found := diagnosePod(pod, job.Name); found != nil && found.final {
			return found.message
		}
	}
	late := p.now.Sub(startsFrom(job)) > startTimeoutOf(p.env)
	if late && r.Hub.Session(string(job.UID)) == nil && p.now.Sub(r.Hub.Since()) > reconnectWait {
		return "a pod of the pool did not start in time, or lost its connection"
	}
	return ""
}

// reconnectWait is how long after this operator's start runners may take to come back.
const reconnectWait = 15 * time.Second

// remove deletes a Job of the pool, unless it is a call's by now: a call has its runner, or the Job has changed since
// it was seen, as it does when a call adopts it. A call can come and go while a pass over a large pool is under way;
// the pod that served it has not failed.
func (r *WarmPoolReconciler) remove(ctx context.Context, p *pool, job *batchv1.Job) (removed bool, err error) {
	if !r.Hub.Withdraw(string(job.UID)) {
		return false, nil
	}
	unchanged := client.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion}
	err = r.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground), unchanged)
	switch {
	case apierrors.IsConflict(err):
		p.wakeIn(cacheLag)
		return false, nil
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("delete a Job of the pool: %w", err)
	}
	return true, nil
}

// refill creates what is missing.
func (r *WarmPoolReconciler) refill(ctx context.Context, p *pool) error {
	if p.size == 0 {
		return nil
	}
	notBefore := r.State.aim(p.env, p.hash)
	if p.alive < p.size && p.now.Before(notBefore) {
		p.wakeIn(notBefore.Sub(p.now))
		return nil
	}
	missing := p.size - p.alive
	if missing <= 0 {
		return nil
	}
	// One first: when the API server doesn't take it, it won't take the others.
	if err := r.addPod(ctx, p); err != nil {
		return r.refused(p, err)
	}
	var rest errgroup.Group
	rest.SetLimit(refillConcurrency)
	for range missing - 1 {
		rest.Go(func() error { return r.addPod(ctx, p) })
	}
	if err := rest.Wait(); err != nil {
		return r.refused(p, err)
	}
	return nil
}

// refillConcurrency is how many pods of one pool are created at the same time. One after the other, a pool is refilled
// more slowly than calls can empty it.
const refillConcurrency = 8

// addPod creates one waiting pod's Job, and the pod's credential. It changes nothing of the pool.
func (r *WarmPoolReconciler) addPod(ctx context.Context, p *pool) error {
	in := p.template
	in.Name = jobspec.WarmName(p.env, rand.String(10))
	job := jobspec.BuildWarm(in, p.hash, r.Identity)
	if err := r.Create(ctx, job); err != nil {
		return fmt.Errorf("create a Job of the pool: %w", err)
	}
	token := r.Identity.Token(job.Namespace, job.Name, string(job.UID))
	err := r.Create(ctx, jobspec.Credential(job, token), client.DisableReadYourWritesConsistency)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the credential of a waiting pod: %w", err)
	}
	return nil
}

// refused backs off when the API server doesn't take the pool's Jobs.
func (r *WarmPoolReconciler) refused(p *pool, err error) error {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if !rejected(err) {
		return err
	}
	r.State.failed(p.env, "the API server refused a waiting pod: "+err.Error(), p.now)
	p.wakeIn(firstBackOff)
	return nil
}
