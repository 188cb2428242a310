package controllers

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
)

// scope is one pass over one call: what was found, and what is to be done about it.
type scope struct {
	original *v1alpha1.ToolCall
	call     *v1alpha1.ToolCall
	now      time.Time
	// seen is when the call was created, as well as the operator can know.
	seen time.Time

	// job is the call's Job, nil when there is none.
	job *batchv1.Job
	// record is what was decided when the call was accepted, nil before that.
	record *jobspec.Record
	// environment is the one in effect; set by accept for launch.
	environment *v1alpha1.ExecutionEnvironment
	fallback    *v1alpha1.ExecutionEnvironment
	refs        []corev1.EnvVar
	// caller shares turns with the other calls of the same name; empty for calls whose creator is unknown.
	caller string
	// judged tells the caller's later calls that this one has been decided; nil where they don't wait for that.
	judged func()
	// session is the connection of the call's own runner: the one that is recorded, or else the one that
	// says hello for the call's Job. nil when none is connected.
	session *dispatch.Session

	// hindrance is what kept the call's pod from its credential, for now.
	hindrance error

	// follows is done after the status was written, in order.
	follows []func(context.Context) error
	// wake is when to look again, 0 for not on a timer.
	wake time.Duration
}

// gather finds all that a pass may look at.
func (r *ToolCallReconciler) gather(ctx context.Context, req ctrl.Request) (*scope, error) {
	call, err := r.find(ctx, req.NamespacedName)
	if err != nil {
		return nil, err
	}
	s := &scope{original: call, call: call.DeepCopy(), now: r.Clock.Now()}
	s.seen = firstSeen(call.CreationTimestamp.Time, s.now)
	if seen, ok := r.Turns.FirstSeen(req.NamespacedName, call.UID); ok {
		s.seen = seen
	}
	if call.Status.Runner != nil {
		s.session = r.Hub.SessionByKey(call.Status.Runner.KeyHash)
	}
	if call.Status.Phase.Terminal() {
		return s, nil
	}
	return s, r.gatherJob(ctx, s)
}

func (r *ToolCallReconciler) gatherJob(ctx context.Context, s *scope) error {
	job, err := r.callJob(ctx, types.NamespacedName{Namespace: s.call.Namespace, Name: s.jobName()})
	if err != nil || job == nil {
		return err
	}
	if !r.take(s, job) {
		// accept says so, unless the call is past that.
		s.job = job
	}
	return nil
}

// take has the pass go on with a Job of the call's name, and with what was decided, which the Job keeps. It does nothing
// when the operator didn't make the Job for the call.
func (r *ToolCallReconciler) take(s *scope, job *batchv1.Job) (ours bool) {
	record, ours := jobspec.ReadRecord(job, s.call, r.Identity)
	if !ours {
		return false
	}
	s.job, s.record = job, record
	s.seen = time.UnixMicro(record.SeenMicroseconds)
	if !s.bound() {
		s.session = r.Hub.Session(string(job.UID))
	}
	return true
}

// callJob is the Job of a call that has not ended, nil when there is none. Of one that is over the cache has not all.
func (r *ToolCallReconciler) callJob(ctx context.Context, key types.NamespacedName) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	err := r.Get(ctx, key, job)
	if err == nil && jobOver(job) {
		job = &batchv1.Job{}
		err = r.Live.Get(ctx, key, job)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get the call's Job: %w", err)
	}
	return job, nil
}

// jobName is the Job that is recorded, or else the one that launch would make.
func (s *scope) jobName() string {
	if s.call.Status.Job != "" {
		return s.call.Status.Job
	}
	return jobspec.Name(s.call)
}

// firstSeen guesses when a call was created: the API server says it in whole seconds only, and most calls
// are looked at within milliseconds.
func firstSeen(created, now time.Time) time.Time {
	if now.Sub(created) > time.Second {
		return created
	}
	return now
}

// bound says that it is recorded which runner has the call: its command may have started.
func (s *scope) bound() bool { return s.call.Status.Runner != nil }

func (s *scope) statusChanged() bool {
	return !equality.Semantic.DeepEqual(s.original.Status, s.call.Status)
}

// after has something done once the status is written.
func (s *scope) after(do func(context.Context) error) { s.follows = append(s.follows, do) }

// wakeIn has the call looked at again after d at the latest.
func (s *scope) wakeIn(d time.Duration) {
	d = max(d, time.Millisecond)
	if s.wake == 0 || d < s.wake {
		s.wake = d
	}
}

// millis is the time since the call's creation.
func (s *scope) millis() *int64 {
	ms := s.now.Sub(s.seen).Milliseconds()
	return &ms
}

// callOfPod maps a pod to the call that its labels name. A pod that carries another call's label can at
// most have that call looked at once more.
func (r *ToolCallReconciler) callOfPod(ctx context.Context, o client.Object) []reconcile.Request {
	return r.ifInFlight(ctx, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetAnnotations()[jobspec.AnnotationCall]})
}

// callOfJob maps a Job to the call that owns it.
func (r *ToolCallReconciler) callOfJob(ctx context.Context, o client.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != "ToolCall" {
		return nil
	}
	call := types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}
	if job, ok := o.(*batchv1.Job); ok && wasSuspended(job) {
		// It may start again, also after its call has ended.
		return []reconcile.Request{{NamespacedName: call}}
	}
	return r.ifInFlight(ctx, call)
}

// ifInFlight leaves out calls that the cache doesn't have: they have ended, or are looked at when they come into it.
func (r *ToolCallReconciler) ifInFlight(ctx context.Context, call types.NamespacedName) []reconcile.Request {
	if call.Name == "" || r.Get(ctx, call, &v1alpha1.ToolCall{}, client.DisableReadYourWritesConsistency) != nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: call}}
}
