// Package output has output of calls stored that is more than their status keeps (outputs.go, with what it reads from,
// runnerstream.go). When a call ends before all is stored, its controller here says what came of it; the controller of calls has no
// part in that. What is stored of calls that are gone it removes (outputcare.go, removals.go).
package output

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/toolsession"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/store"
	"toolcall.dev/operator/internal/trigger"
)

const (
	// storePatience is for how long after its end a call's output is read from its pod, and storeLimit when what isn't stored by
	// then is lost, whatever the store does. While no operator listened, no pod could be read.
	storePatience = 5 * time.Minute
	storeLimit    = storePatience + time.Minute
	// concurrent is how many calls are looked at at the same time, and concurrentOfNamespace how many of one namespace.
	concurrent            = 16
	concurrentOfNamespace = concurrent / 4
)

// Reconciler brings the output of ended calls to its end.
type Reconciler struct {
	Client  client.Client
	Objects apicache.Reader
	Clock   clock.PassiveClock
	Hub     *dispatch.Hub
	Outputs *Outputs
	// Sessions looks up the sessions of calls.
	Sessions *toolsession.Servings
	// Done has a call looked at whose output was stored, or is lost: its runner may go.
	Done func(types.NamespacedName)
	// Warn makes an Event of a call, unless there are too many.
	Warn Warn
}

// Warn makes an Event of a call.
type Warn func(call *v1alpha1.ToolCall, kind, reason, action, message string)

// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolcalls,verbs=get;list;watch
// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolcalls/status,verbs=patch
// +kubebuilder:rbac:groups=toolcall.dev,roleName=toolcall-operator-namespaced,resources=toolsessions,verbs=get;list;watch
// +kubebuilder:rbac:groups="",roleName=toolcall-operator-namespaced,resources=pods,verbs=get;list;watch

// SetupWithManager registers the controller. It looks at the calls that there is news of.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, calls *trigger.Trigger) error {
	_, err := controller.New("output", mgr, controller.Options{
		MaxConcurrentReconciles: concurrent, NewQueue: calls.Queue,
		Reconciler: fair.OfNamespaces(r, concurrentOfNamespace, func(call types.NamespacedName) { calls.Enqueue(call, 0) }),
	})
	return err
}

// Reconcile looks at a call that has ended and whose status says that its output is being stored. The cache has no such calls.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	call, err := r.Objects.LiveCall(ctx, req.NamespacedName)
	if err != nil || call == nil || !call.Status.Phase.Terminal() || !IsStoring(&call.Status) {
		return ctrl.Result{}, err
	}
	now := r.Clock.Now()
	readable := r.readable(call, now)
	keyHash, isGone, err := r.source(ctx, call)
	if errors.Is(err, toolsession.ErrBehind) {
		return ctrl.Result{RequeueAfter: host.RetryPause}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	isGone = isGone || !now.Before(readable.Add(storePatience))
	// What the policy lets be kept isn't known any more, and the runner keeps no more than that.
	of := Of{Call: req.NamespacedName, UID: call.UID, KeyHash: keyHash, KeepBytes: store.MaxLimit}
	var storing []output.Key
	for _, part := range of.partsOf(&call.Status) {
		if part.state() == store.Storing {
			storing = append(storing, part.key)
		}
	}
	states, _ := r.Outputs.Finish(of, storing, now, isGone)
	isLate := !now.Before(readable.Add(storeLimit))
	for key, s := range states {
		switch {
		case s.State != store.Storing:
		case !isLate:
			return ctrl.Result{RequeueAfter: host.RetryPause}, nil
		default:
			states[key] = store.Status{State: store.Lost}
		}
	}
	after := call.DeepCopy()
	of.SetStored(&after.Status, call.Generation, now, states)
	of.dropHints(call, &after.Status)
	return ctrl.Result{}, r.write(ctx, call, after)
}

// readable is since when what a call left can be read: its end, or when its pod could first reach this operator.
func (r *Reconciler) readable(call *v1alpha1.ToolCall, now time.Time) time.Time {
	heard := r.Hub.Since()
	if heard.IsZero() {
		return now
	}
	if ended := call.FinishedAt(); heard.Before(ended) {
		return ended
	}
	return heard
}

// write records what became of a call's output.
func (r *Reconciler) write(ctx context.Context, before, after *v1alpha1.ToolCall) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	// The cache will not show it.
	if err := r.Client.Status().Patch(ctx, after.DeepCopy(), patch, client.DisableReadYourWritesConsistency); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write what became of the call's output: %w", err)
	}
	name := client.ObjectKeyFromObject(after)
	r.Outputs.Release(name, after.UID)
	Announce(before, after, r.Warn)
	r.Done(name)
	return nil
}

// source is the key of the process that has what the call wrote. isGone says that nobody has: the call's pod has ended, or its
// session has another one.
func (r *Reconciler) source(ctx context.Context, call *v1alpha1.ToolCall) (keyHash string, isGone bool, err error) {
	if ref := call.Spec.SessionRef; ref != nil {
		serving, err := r.Sessions.Look(ctx, types.NamespacedName{Namespace: call.Namespace, Name: ref.Name}, ref.UID)
		if err != nil || serving.Host == nil {
			return "", true, err
		}
		if in := call.Status.Session; in == nil || in.Incarnation != serving.Session.Status.Incarnation {
			return "", true, nil
		}
		keyHash = serving.Session.Status.Runner.KeyHash
		if serving.Host.Runner != nil {
			return keyHash, false, nil
		}
		lost, err := toolsession.Gone(ctx, r.Objects, serving.Session)
		return keyHash, lost != nil, err
	}
	bound := call.Status.Runner
	if bound == nil {
		return "", true, nil
	}
	if r.Hub.RunnerByKey(bound.KeyHash) != nil {
		return bound.KeyHash, false, nil
	}
	pod, err := r.Objects.PodByUID(ctx, types.NamespacedName{Namespace: call.Namespace, Name: call.Status.Pod}, bound.PodUID)
	return bound.KeyHash, pod == nil || host.HasPodEnded(pod), err
}

// Announce tells the world what the output store did of a call.
func Announce(before, after *v1alpha1.ToolCall, warn Warn) {
	of := Of{Call: client.ObjectKeyFromObject(after), UID: after.UID}
	was := map[output.Key]store.State{}
	for _, part := range of.partsOf(&before.Status) {
		was[part.key] = part.state()
	}
	for _, part := range of.partsOf(&after.Status) {
		state := part.state()
		if state == "" || state == store.Storing || state == was[part.key] {
			continue
		}
		metrics.CountStored(after.Namespace, &after.Status, string(state), part.kept())
		if state == store.Lost {
			metrics.CountStoreError(metrics.StoreWrite)
		}
	}
	said := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionOutputStored)
	now := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionOutputStored)
	if now != nil && now.Reason == v1alpha1.ReasonOutputLost && (said == nil || said.Reason != now.Reason) {
		warn(after, corev1.EventTypeWarning, now.Reason, "StoreOutput", now.Message)
	}
}
