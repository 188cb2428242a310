package controllers

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	err = r.Delete(ctx, s.call, client.Preconditions{UID: &s.call.UID})
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
