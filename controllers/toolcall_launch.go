package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/jobspec"
)

// launch creates the accepted call's Job, and then the credential of its pod. It is past when a Job is there.
func (r *ToolCallReconciler) launch(ctx context.Context, s *scope) (bool, error) {
	if s.bound() || s.job != nil {
		return false, nil
	}
	job, err := jobspec.Build(jobspec.Input{
		Call: s.call, Environment: s.environment, Record: s.record,
		Refs: s.refs, Runtime: r.Runtime, Sealer: r.Identity,
	})
	if err != nil {
		s.fail(v1alpha1.ReasonInvalidEnvironment, err.Error())
		return true, nil
	}
	err = r.Create(ctx, job)
	switch {
	case apierrors.IsAlreadyExists(err):
		return r.findLaunched(ctx, s, client.ObjectKeyFromObject(job))
	case rejected(err):
		s.fail(v1alpha1.ReasonPodRejected, "the API server refused the call's Job: "+err.Error())
		return true, nil
	case err != nil:
		r.notTaken(ctx, s, fmt.Errorf("create the call's Job: %w", err))
		return true, nil
	}
	s.job = job
	r.untaken.forget(client.ObjectKeyFromObject(s.call))
	if r.credential(ctx, s) {
		return true, nil
	}
	if s.hindrance == nil && len(s.original.Status.Conditions) == 0 && !suspended(job) {
		s.call.Status = *s.original.Status.DeepCopy()
		r.launched.keep(s.call, s.now)
		s.wakeIn(acceptWait)
		return true, nil
	}
	s.accepted()
	s.held()
	s.wakeIn(podWait)
	return true, nil
}

// findLaunched goes on with the Job that is there already. A pass whose answer was lost made it, and the cache may not show
// it yet, or never: somebody took its label away.
func (r *ToolCallReconciler) findLaunched(ctx context.Context, s *scope, key types.NamespacedName) (done bool, err error) {
	job := &batchv1.Job{}
	err = r.Live.Get(ctx, key, job)
	switch {
	case apierrors.IsNotFound(err):
		s.wakeIn(cacheLag)
		return true, nil
	case err != nil:
		return true, fmt.Errorf("get the Job that is there already: %w", err)
	}
	if !r.take(s, job) {
		s.notOurs(job.Name)
		return true, nil
	}
	return false, nil
}

// notOurs ends a call whose place is taken by a Job that isn't its own.
func (s *scope) notOurs(job string) {
	s.fail(v1alpha1.ReasonPodRejected, fmt.Sprintf("a Job named %s is there already and was not made by this operator for this call: delete it and create the call again", job))
}

// acceptWait is for how long a call that was accepted may not say so: most have started by then, and both are one
// write. What was decided is kept in the Job meanwhile.
const acceptWait = time.Second

// moments remembers since when something is so of some calls that have not ended.
type moments struct {
	mu  sync.Mutex
	ats map[types.NamespacedName]time.Time
}

func (l *moments) keep(call *v1alpha1.ToolCall, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ats == nil {
		l.ats = map[types.NamespacedName]time.Time{}
	}
	l.ats[client.ObjectKeyFromObject(call)] = now
}

func (l *moments) of(key types.NamespacedName) (at time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok = l.ats[key]
	return at, ok
}

func (l *moments) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ats, key)
}

// sayAccepted writes that the call is accepted, unless it is likely to start in a moment. It says whether the call ended
// instead.
func (r *ToolCallReconciler) sayAccepted(ctx context.Context, s *scope) (done bool) {
	launched, mine := r.launched.of(client.ObjectKeyFromObject(s.call))
	if left := launched.Add(acceptWait).Sub(s.now); mine && left > 0 && s.call.Status.Job == "" && !suspended(s.job) {
		s.wakeIn(left)
		return false
	}
	_, missing := r.untold.of(client.ObjectKeyFromObject(s.call))
	if missing || s.call.Status.Job == "" && !mine {
		// The pass that made the Job may have been cut short: its pod may still wait for the credential.
		if r.credential(ctx, s) {
			return true
		}
	}
	s.accepted()
	s.held()
	return false
}

// notTaken looks after a call whose Job the API server doesn't take now, an admission webhook that is away for
// instance. It is tried again for as long as the call may wait for its start.
func (r *ToolCallReconciler) notTaken(ctx context.Context, s *scope, cause error) {
	ctrl.LoggerFrom(ctx).Error(cause, "The call has no Job yet")
	key := client.ObjectKeyFromObject(s.call)
	since, known := r.untaken.of(key)
	if !known {
		since = s.now
		r.untaken.keep(s.call, since)
	}
	open, limit := s.now.Sub(since), time.Duration(s.record.StartTimeoutSeconds)*time.Second
	if open >= limit {
		s.fail(v1alpha1.ReasonPodRejected, fmt.Sprintf("within %s the API server did not take the call's Job: %v", limit, cause))
		return
	}
	s.allowed()
	s.condition(v1alpha1.ConditionStarted, false, v1alpha1.ReasonNotStarted, "the call's Job can't be made yet, which is tried again: "+cause.Error())
	s.wakeIn(min(limit-open, max(soonestAgain, min(latestAgain, open/2))))
}

// credential makes sure that the call's pod has its token. It says whether the call ended with the try; what may pass is
// tried again until the call must have started.
func (r *ToolCallReconciler) credential(ctx context.Context, s *scope) (done bool) {
	err := r.ensureCredential(ctx, s)
	switch {
	case err == nil:
		r.untold.forget(client.ObjectKeyFromObject(s.call))
		return false
	case rejected(err):
		s.fail(v1alpha1.ReasonPodRejected, "the API server refused the Secret with the token of the call's pod: "+err.Error())
		r.removeJob(s)
		return true
	}
	ctrl.LoggerFrom(ctx).Error(err, "The call's pod has no token yet")
	r.untold.keep(s.call, s.now)
	s.hindrance = err
	s.wakeIn(soonestAgain)
	return false
}

// rejected says that the API server will not take an object, however often it is sent.
func rejected(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// ensureCredential gives the Job's pod its token. Making it again makes the same one.
func (r *ToolCallReconciler) ensureCredential(ctx context.Context, s *scope) error {
	token := r.Identity.Token(s.job.Namespace, s.job.Name, string(s.job.UID))
	err := r.Create(ctx, jobspec.Credential(s.job, token), client.DisableReadYourWritesConsistency)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the credential of the call's pod: %w", err)
	}
	return nil
}

// bind records which runner has the call, and only then hands the call to it. A runner that is recorded
// already and says that it has nothing yet (the connection broke on the way) is given it again: it is the
// same process, and that starts a command once.
func (r *ToolCallReconciler) bind(ctx context.Context, s *scope) (bool, error) {
	if s.session == nil || s.record == nil {
		return false, nil
	}
	if !s.bound() {
		if suspended(s.job) {
			// The pod is about to be removed.
			return false, nil
		}
		ok, err := r.isPodOf(ctx, s)
		if err != nil {
			return true, err
		}
		if !ok {
			s.session.Refuse("the pod is not one of this call's Job")
			return false, nil
		}
		s.started()
	}
	if s.session.CallUID() != "" {
		return false, nil
	}
	assignment, err := r.assignment(s)
	if err != nil {
		return true, err
	}
	r.handOver(s, assignment)
	return false, nil
}

// handOver gives the call to its runner once that is recorded.
func (r *ToolCallReconciler) handOver(s *scope, assignment *wire.Assignment) {
	session, uid := s.session, string(s.call.UID)
	s.after(func(context.Context) error {
		// A runner that can't be reached dials in again.
		_ = session.Assign(assignment)
		r.Hub.Settle(uid)
		return nil
	})
}

// isPodOf says whether the runner's pod exists, is the Job's, and is the one that it says it is.
func (r *ToolCallReconciler) isPodOf(ctx context.Context, s *scope) (bool, error) {
	hello := s.session.Hello()
	key := types.NamespacedName{Namespace: s.call.Namespace, Name: hello.Pod}
	for _, reader := range []client.Reader{r.Client, r.Live} {
		pod := &corev1.Pod{}
		err := reader.Get(ctx, key, pod)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("get the runner's pod: %w", err)
		}
		if err == nil && string(pod.UID) == hello.PodUID && len(podOwner(pod)) == 1 && podOwner(pod)[0] == string(s.job.UID) {
			return pod.DeletionTimestamp == nil, nil
		}
	}
	return false, nil
}

func (r *ToolCallReconciler) assignment(s *scope) (*wire.Assignment, error) {
	action, denial := guards.Map(&s.call.Spec)
	if denial != nil {
		return nil, fmt.Errorf("map an accepted call: %s: %s", denial.Reason, denial.Message)
	}
	return s.record.Assignment(s.call, commandOf(action)), nil
}

// commandOf is the part of the command line that the call decides.
func commandOf(action *guards.Action) jobspec.Action {
	switch action.Type {
	case v1alpha1.ActionShell:
		return jobspec.Action{Argv: []string{action.Command}}
	case v1alpha1.ActionCode:
		return jobspec.Action{Source: []byte(action.Source)}
	default:
		return jobspec.Action{Argv: append([]string{action.Binary}, action.Args...)}
	}
}
