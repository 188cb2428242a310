// Package retention deletes calls that have ended, when their time is up: that which the call says, or its environment. Of a session's
// calls, all but the last ones go sooner. With an audit log, none goes before its record is made. The controller of calls says which
// have ended; after a restart Seed lists them.
package retention

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/trigger"
)

const (
	// defaultTTLSeconds is how long a finished call stays when neither it nor its environment says so.
	defaultTTLSeconds = 3600
	// ttlSecondsOfSession is how long a finished call of a session stays that doesn't say so itself, and keptOfSession how many of one
	// session do at most: at a hundred a second, etcd would not have room for an hour of them.
	ttlSecondsOfSession = 300
	keptOfSession       = 200
	// readPause is how long to wait before what can't be read is read again, and recordPause before the audit log is asked again.
	readPause   = 5 * time.Second
	recordPause = time.Second
)

// Reconciler deletes finished calls.
type Reconciler struct {
	Client  client.Client
	Objects apicache.Reader
	Clock   clock.PassiveClock
	// Schedule remembers when.
	Schedule *Schedule
	// Audit knows of which calls a record is made: none is deleted before. It is nil without an audit log.
	Audit Audit
	// Concurrent is how many calls are deleted at the same time.
	Concurrent int
}

// Audit is what writes the audit log.
type Audit interface {
	// IsBehind says that it doesn't know all calls of a namespace that have ended.
	IsBehind(namespace string) bool
	// HasCall says that a call that has ended has a record, in the log or on its way there.
	HasCall(types.UID) bool
}

// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolcalls,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=executionenvironments,verbs=get;list;watch

// SetupWithManager registers the controller. It looks at the calls whose time has come.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, calls *trigger.Trigger) error {
	_, err := controller.New("retention", mgr, controller.Options{
		MaxConcurrentReconciles: r.Concurrent, NewQueue: calls.Queue,
		Reconciler: fair.OfNamespaces(r, max(r.Concurrent/2, 1), func(call types.NamespacedName) { calls.Enqueue(call, 0) }),
	})
	return err
}

// Keep remembers when a call that has ended is to be deleted.
func (r *Reconciler) Keep(ctx context.Context, call *v1alpha1.ToolCall) {
	ttl, err := r.ttl(ctx, call)
	due := call.FinishedAt().Add(ttl)
	if err != nil {
		due = r.Clock.Now().Add(readPause)
	}
	r.Schedule.Add(client.ObjectKeyFromObject(call), due)
}

// Reconcile deletes a call if its time is up.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if r.Audit != nil && r.Audit.IsBehind(req.Namespace) {
		return ctrl.Result{RequeueAfter: readPause}, nil
	}
	uid, is := r.Schedule.surplus(req.NamespacedName)
	if !is {
		// The cache has no finished calls.
		call, err := r.Objects.LiveCall(ctx, req.NamespacedName)
		if err != nil {
			return ctrl.Result{}, err
		}
		if call == nil || !call.Status.Phase.Terminal() {
			r.Schedule.Forget(req.NamespacedName, uid)
			return ctrl.Result{}, nil
		}
		ttl, err := r.ttl(ctx, call)
		if err != nil {
			return ctrl.Result{}, err
		}
		if due := call.FinishedAt().Add(ttl); due.After(r.Clock.Now()) {
			r.Schedule.Add(req.NamespacedName, due)
			return ctrl.Result{}, nil
		}
		uid = call.UID
	}
	if r.Audit != nil && !r.Audit.HasCall(uid) {
		if is {
			return r.awaitRecord(ctx, req.NamespacedName, uid)
		}
		return ctrl.Result{RequeueAfter: recordPause}, nil
	}
	return ctrl.Result{}, r.remove(ctx, req.NamespacedName, uid)
}

// awaitRecord has a session's call that has no record looked at again, unless it is gone: then the audit log has forgotten it.
func (r *Reconciler) awaitRecord(ctx context.Context, name types.NamespacedName, uid types.UID) (ctrl.Result, error) {
	call, err := r.Objects.LiveCall(ctx, name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if call != nil && call.UID == uid {
		return ctrl.Result{RequeueAfter: readPause}, nil
	}
	r.Schedule.Forget(name, uid)
	return ctrl.Result{}, nil
}

// remove deletes the call of a name that has a UID, unless another call has the name by now, which is a conflict.
func (r *Reconciler) remove(ctx context.Context, name types.NamespacedName, uid types.UID) error {
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	err := r.Client.Delete(ctx, call, client.Preconditions{UID: &uid}, client.DisableReadYourWritesConsistency)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the finished call: %w", err)
	}
	r.Schedule.Forget(name, uid)
	return nil
}

// ttlOfSession is how long a finished call of a session stays, unless too many others finish meanwhile.
func ttlOfSession(call *v1alpha1.ToolCall) time.Duration {
	return time.Duration(ptr.Deref(call.Spec.TTLSecondsAfterFinished, ttlSecondsOfSession)) * time.Second
}

// ttl is how long a finished call stays.
func (r *Reconciler) ttl(ctx context.Context, call *v1alpha1.ToolCall) (time.Duration, error) {
	if call.Spec.SessionRef != nil {
		return ttlOfSession(call), nil
	}
	if seconds := call.Spec.TTLSecondsAfterFinished; seconds != nil {
		return time.Duration(*seconds) * time.Second, nil
	}
	if call.Status.Environment != nil {
		env := &v1alpha1.ExecutionEnvironment{}
		err := r.Objects.Get(ctx, types.NamespacedName{Namespace: call.Namespace, Name: call.Status.Environment.Name}, env)
		if client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("get the call's environment: %w", err)
		}
		if err == nil && env.Spec.TTLSecondsAfterFinished != nil {
			return time.Duration(*env.Spec.TTLSecondsAfterFinished) * time.Second, nil
		}
	}
	return defaultTTLSeconds * time.Second, nil
}
