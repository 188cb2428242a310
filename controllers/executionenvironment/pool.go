package executionenvironment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/trigger"
)

// passLimit is how many Jobs of a pool a pass deletes at most, and how many it creates. The rest is left to the next
// pass, so that no pool keeps a worker from the others for long.
const passLimit = 20

// pool is one look at an environment's waiting pods.
type pool struct {
	env      *v1alpha1.ExecutionEnvironment
	backoff  *backoff
	template jobspec.WarmInput
	hash     string
	// unheld says that the namespace's NetworkPolicies are refused; empty when they aren't.
	unheld string
	now    time.Time
	size   int
	// alive counts the pods that wait or will.
	alive int
	// deletions counts the requests to delete a Job, leftover the Jobs that the next pass has to delete.
	deletions, leftover int
	wake                time.Duration
}

func (r *Reconciler) newPool(env *v1alpha1.ExecutionEnvironment) *pool {
	known, _ := r.backoffs.LoadOrStore(client.ObjectKeyFromObject(env), &backoff{})
	return &pool{env: env, backoff: known.(*backoff), now: r.Clock.Now()}
}

func (p *pool) wakeIn(d time.Duration) {
	if d <= 0 {
		return
	}
	if d = max(d, time.Millisecond); p.wake == 0 || d < p.wake {
		p.wake = d
	}
}

// nextBatch is when a pass goes on with what passLimit left.
const nextBatch = 10 * time.Millisecond

// result has the environment looked at again, after those that something happened to.
func (p *pool) result() ctrl.Result {
	return ctrl.Result{RequeueAfter: p.wake, Priority: ptr.To(0)}
}

// reconcilePool brings the number of waiting pods to what the environment wants.
func (r *Reconciler) reconcilePool(ctx context.Context, p *pool, in *inputs, jobs []batchv1.Job) error {
	p.size = int(host.PoolSize(p.env))
	if p.size == 0 && len(jobs) == 0 {
		return nil
	}
	r.setTemplate(p, in)
	p.backoff.keepOnly(jobs)
	for i := range jobs {
		if err := r.reconcilePod(ctx, p, &jobs[i]); err != nil {
			return err
		}
	}
	return r.refill(ctx, p)
}

// dissolve removes what waits for calls in an environment that is gone. A pod that a call was given stays until the
// call has its Job.
func (r *Reconciler) dissolve(ctx context.Context, name types.NamespacedName, jobs []batchv1.Job) (ctrl.Result, error) {
	if len(jobs) == 0 {
		return ctrl.Result{}, nil
	}
	err := r.Objects.Live.Get(ctx, name, &v1alpha1.ExecutionEnvironment{})
	if err == nil {
		// The cache doesn't have it yet.
		return ctrl.Result{RequeueAfter: apicache.Lag}, nil
	}
	if !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("look whether the pool's environment is gone: %w", err)
	}
	gone := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	p := &pool{env: gone, backoff: &backoff{}, now: r.Clock.Now()}
	for i := range jobs {
		if err := r.reconcilePod(ctx, p, &jobs[i]); err != nil {
			return ctrl.Result{}, err
		}
	}
	// Until none is there.
	p.wakeIn(dissolvePause)
	return p.result(), nil
}

// dissolvePause is when a pool without an environment is looked at again, if nothing that happens to its Jobs says so.
const dissolvePause = 30 * time.Second

// setTemplate works out what the pods are to be made from. Without one default environment, or a policy that can be
// used, there is nothing that pods could be kept for.
func (r *Reconciler) setTemplate(p *pool, in *inputs) {
	var err error
	if p.template, p.hash, err = r.template(p.env, in); err != nil {
		// What works afterwards is a new template, also where it is the one of before.
		p.backoff.setTemplate("")
		p.backoff.countFailure(err.Error(), p.now)
		p.size = 0
		return
	}
	// Before the pods are judged: their failures count for this template, also the first ones after a restart.
	p.backoff.setTemplate(p.hash)
}

// template is what the environment's waiting pods are made from. The error is the user's.
func (r *Reconciler) template(env *v1alpha1.ExecutionEnvironment, in *inputs) (jobspec.WarmInput, string, error) {
	if message := decide.DuplicateDefault(in.Defaults); message != "" {
		return jobspec.WarmInput{}, "", errors.New(message)
	}
	object, err := in.policies.For(env)
	if err != nil {
		return jobspec.WarmInput{}, "", err
	}
	policy, err := r.Policies.Compile(object)
	if err != nil {
		return jobspec.WarmInput{}, "", fmt.Errorf("the policy does not compile: %w", err)
	}
	return host.PoolTemplate(env, in.DefaultEnvironment(), object, policy.EnvBlocklist(), r.Runtime)
}

// reconcilePod looks after one Job of the pool.
func (r *Reconciler) reconcilePod(ctx context.Context, p *pool, job *batchv1.Job) error {
	uid := string(job.UID)
	if job.DeletionTimestamp != nil || r.Hosts.IsBusy(uid) {
		return nil
	}
	pod, err := r.Objects.PodOf(ctx, job)
	if err != nil {
		return err
	}
	if (pod != nil || jobspec.HasEnded(job)) && !r.Hosts.IsOffered(uid) {
		// An operator before this one may have given it to a call.
		calls, err := r.Objects.CallsOfJob(ctx, client.ObjectKeyFromObject(job))
		for i := range calls {
			r.Calls.Enqueue(client.ObjectKeyFromObject(&calls[i]), trigger.PriorityStart)
		}
		if err != nil || len(calls) > 0 {
			return err
		}
		// Or to a session, which looks after it itself.
		if sessions, err := r.Objects.SessionsOfJob(ctx, client.ObjectKeyFromObject(job)); err != nil || len(sessions) > 0 {
			return err
		}
	}
	surplus := p.alive >= p.size || job.Annotations[jobspec.AnnotationTemplate] != p.hash || host.WasTakenAway(pod)
	problem := r.problemOf(p, job, pod)
	if surplus || problem != "" {
		removed, err := r.remove(ctx, p, job)
		if removed && problem != "" && !surplus {
			p.backoff.countFailure(problem, p.now)
			metrics.CountPoolFailed(client.ObjectKeyFromObject(p.env))
			r.Events.Eventf(p.env, nil, corev1.EventTypeWarning, v1alpha1.ReasonPodsFail, "Refill", "%s", bounds.Note(problem))
		}
		return err
	}
	p.alive++
	r.offer(p, host.Host{Job: job, Pod: pod, Runner: r.Hub.Runner(uid)})
	return r.ensureCredential(ctx, p, job, pod)
}

// ensureCredential makes the Secret that a pod waits for: the pass that made its Job was cut short.
func (r *Reconciler) ensureCredential(ctx context.Context, p *pool, job *batchv1.Job, pod *corev1.Pod) error {
	if pod == nil {
		return nil
	}
	if found := host.DiagnosePod(pod, job.Name); found == nil || !found.NoCredential {
		return nil
	}
	if left := p.backoff.notBefore.Sub(p.now); left > 0 {
		p.wakeIn(left)
		return nil
	}
	return r.refused(p, host.CreateCredential(ctx, r.Client, r.Identity, job))
}

// offer lets calls claim a host once its runner waits and is known to be in the Job's pod.
func (r *Reconciler) offer(p *pool, h host.Host) {
	switch {
	case host.IsIdle(h):
		r.Hosts.Offer(string(h.Job.UID), p.hash)
		r.Nodes.Add(client.ObjectKeyFromObject(p.env), h.Runner.Hello(), p.now)
		p.backoff.reset()
	case h.Runner == nil && jobspec.IsSuspended(h.Job):
		// What lets it run changes the Job.
	case h.Runner == nil:
		p.wakeIn(jobspec.StartsFrom(h.Job).Add(startTimeout(p.env)).Sub(p.now))
	case h.Pod == nil:
		p.wakeIn(apicache.Lag)
	default:
		h.Runner.Refuse("the pod is not the one of the pool's Job")
	}
}

func startTimeout(env *v1alpha1.ExecutionEnvironment) time.Duration {
	return time.Duration(decide.StartTimeoutSeconds(env)) * time.Second
}

// problemOf says why a Job of the pool will not have a waiting runner; empty when it may.
func (r *Reconciler) problemOf(p *pool, job *batchv1.Job, pod *corev1.Pod) string {
	if found := host.DiagnoseJob(job); found != nil {
		return found.Message
	}
	if jobspec.IsSuspended(job) {
		return ""
	}
	var found *host.Problem
	if pod != nil && !host.IsFromBefore(pod, job) {
		found = host.DiagnosePod(pod, job.Name)
	}
	if found != nil && found.Final {
		r.Nodes.SetProblem(client.ObjectKeyFromObject(p.env), found)
		return found.Message
	}
	connected := r.Hub.Runner(string(job.UID)) != nil
	lost, was := p.backoff.lostSince(job.UID, connected, p.now)
	if connected || p.now.Sub(jobspec.StartsFrom(job)) <= startTimeout(p.env) {
		return ""
	}
	if left := lost.Add(dispatch.ReconnectWait).Sub(p.now); was && left > 0 {
		p.wakeIn(left)
		return ""
	}
	if left := host.HeardUntil(r.Hub.Since(), p.now, time.Time{}).Sub(p.now); left >= 0 {
		p.wakeIn(left + time.Millisecond)
		return ""
	}
	if found != nil {
		return host.StartTimeout("a pod of the pool", decide.StartTimeoutSeconds(p.env), found).Message
	}
	return "a pod of the pool did not start in time, or lost its connection"
}

// remove deletes a Job of the pool, unless it is a call's by now: a call has its runner, or the Job has changed since
// it was seen, as it does when a call adopts it. A call can come and go while a pass over a large pool is under way;
// the pod that served it has not failed.
func (r *Reconciler) remove(ctx context.Context, p *pool, job *batchv1.Job) (removed bool, err error) {
	if p.deletions == passLimit {
		p.leftover++
		p.wakeIn(nextBatch)
		return false, nil
	}
	if !r.Hosts.Withdraw(string(job.UID)) {
		return false, nil
	}
	p.deletions++
	unchanged := client.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion}
	err = r.Client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground), unchanged)
	switch {
	case apierrors.IsConflict(err):
		p.wakeIn(apicache.Lag)
		return false, nil
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("delete a Job of the pool: %w", err)
	}
	return true, nil
}

// refillConcurrency is how many pods of one pool are created at the same time. One after the other, a pool is refilled
// more slowly than calls can empty it.
const refillConcurrency = 8

// refill creates what is missing.
func (r *Reconciler) refill(ctx context.Context, p *pool) error {
	// What is still to be deleted takes the place of new pods: a pool never has more than its size.
	missing := p.size - p.alive - p.leftover
	if missing <= 0 {
		return nil
	}
	if p.now.Before(p.backoff.notBefore) {
		p.wakeIn(p.backoff.notBefore.Sub(p.now))
		return nil
	}
	if missing > passLimit {
		missing = passLimit
		p.wakeIn(nextBatch)
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

// addPod creates one waiting pod's Job, and the pod's credential. It changes nothing of the pool.
func (r *Reconciler) addPod(ctx context.Context, p *pool) error {
	in := p.template
	in.Name = jobspec.WarmName(p.env, rand.String(10))
	job := jobspec.BuildWarm(in, p.hash, r.Identity)
	if err := r.Client.Create(ctx, job); err != nil {
		return fmt.Errorf("create a Job of the pool: %w", err)
	}
	if err := r.checkAsMade(ctx, job); err != nil {
		return err
	}
	metrics.CountPoolCreated(client.ObjectKeyFromObject(p.env))
	return host.CreateCredential(ctx, r.Client, r.Identity, job)
}

// errChanged says that what the API server stores isn't what it was asked to.
var errChanged = errors.New("the API server, or a webhook, changed the pod of a Job: a field that it doesn't know, such as an image volume, is left out")

// checkAsMade deletes a Job that isn't as it was made. It would count for nothing, and the pool would make another one, for ever.
func (r *Reconciler) checkAsMade(ctx context.Context, job *batchv1.Job) error {
	stored := job.DeepCopy()
	jobspec.Slim(stored)
	if jobspec.IsPoolJob(stored, r.Identity) {
		return nil
	}
	return cmp.Or(host.DeleteJobs(ctx, r.Client, job), errChanged)
}

// refused backs off when the API server doesn't take the pool's Jobs.
func (r *Reconciler) refused(p *pool, err error) error {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !errors.Is(err, errChanged) {
		return err
	}
	metrics.CountPoolFailed(client.ObjectKeyFromObject(p.env))
	p.backoff.countFailure("the API server refused a waiting pod: "+err.Error(), p.now)
	p.wakeIn(firstBackOff)
	return nil
}
