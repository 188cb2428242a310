package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"toolcall.dev/operator/api/v1alpha1"
)

// defaultTTLSeconds is how long a finished call stays when neither it nor its environment says so.
const defaultTTLSeconds = 3600

// expire deletes a finished call whose time is up. Its Job, if still there, goes with it.
func (r *ToolCallReconciler) expire(ctx context.Context, s *scope) error {
	ttl, err := r.ttl(ctx, s.call)
	if err != nil {
		return err
	}
	if until := sinceFinished(s.call).Add(ttl); until.After(s.now) {
		r.Expiry.Add(client.ObjectKeyFromObject(s.call), until)
		return nil
	}
	// The cache, which has only calls in flight, will not see it go.
	err = r.Delete(ctx, s.call, client.Preconditions{UID: &s.call.UID}, client.DisableReadYourWritesConsistency)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the finished call: %w", err)
	}
	return nil
}

func (r *ToolCallReconciler) ttl(ctx context.Context, call *v1alpha1.ToolCall) (time.Duration, error) {
	if seconds := call.Spec.TTLSecondsAfterFinished; seconds != nil {
		return time.Duration(*seconds) * time.Second, nil
	}
	if call.Status.Environment != nil {
		env := &v1alpha1.ExecutionEnvironment{}
		err := r.Get(ctx, types.NamespacedName{Namespace: call.Namespace, Name: call.Status.Environment.Name}, env)
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("get the call's environment: %w", err)
		}
		if err == nil && env.Spec.TTLSecondsAfterFinished != nil {
			return time.Duration(*env.Spec.TTLSecondsAfterFinished) * time.Second, nil
		}
	}
	return defaultTTLSeconds * time.Second, nil
}

// learnPause is how long to wait before the calls that ended earlier are asked for again.
const learnPause = 5 * time.Second

// learner fills the reconciler's expiry when this replica becomes the leader.
type learner struct {
	reconciler *ToolCallReconciler
	calls      client.WithWatch
}

// Start learns until it has succeeded or the context ends. Nothing waits for it: calls whose time is up stay a little
// longer, at most.
func (l *learner) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, learnPause, true, func(ctx context.Context) (bool, error) {
		calls, err := l.reconciler.LearnFinished(ctx, l.calls)
		log := logf.FromContext(ctx).WithName("retention")
		switch {
		case err == nil:
			log.Info("Know which calls ended before", "calls", calls)
		case ctx.Err() == nil:
			log.Error(err, "Can't see yet which calls ended before; asking again", "after", learnPause)
		}
		return err == nil, nil
	})
	return nil
}

// LearnFinished remembers when the calls that are there and have ended are to go, and says how many they are. They come
// one by one, as what a watch begins with: a page of a list could be hundreds of MiB of output.
func (r *ToolCallReconciler) LearnFinished(ctx context.Context, calls client.WithWatch) (learned int, err error) {
	watching, err := calls.Watch(ctx, &v1alpha1.ToolCallList{}, &client.ListOptions{
		FieldSelector: finished(),
		Raw: &metav1.ListOptions{
			SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		},
	})
	if err != nil {
		return 0, fmt.Errorf("watch the calls that have ended: %w", err)
	}
	defer watching.Stop()
	for event := range watching.ResultChan() {
		switch o := event.Object.(type) {
		case *metav1.Status:
			return learned, fmt.Errorf("watch the calls that have ended: %w", apierrors.FromObject(o))
		case *v1alpha1.ToolCall:
			if o.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
				return learned, nil
			}
			ttl, err := r.ttl(ctx, o)
			if err != nil {
				return learned, err
			}
			r.Expiry.Add(client.ObjectKeyFromObject(o), sinceFinished(o).Add(ttl))
			learned++
		}
	}
	return learned, errors.Join(errors.New("the watch of the calls that have ended broke off"), ctx.Err())
}
