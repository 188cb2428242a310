package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

// Shared is what every reconciler has.
type Shared struct {
	client.Client
	// Live reads past the cache, to be sure before something is called lost.
	Live     client.Reader
	Clock    clock.PassiveClock
	Events   events.EventRecorder
	Policies *PolicyCache
}

func startTimeoutSeconds(env *v1alpha1.ExecutionEnvironment) int32 {
	return ptr.Deref(env.Spec.StartTimeoutSeconds, jobspec.DefaultStartTimeoutSeconds)
}

func startTimeoutOf(env *v1alpha1.ExecutionEnvironment) time.Duration {
	return time.Duration(startTimeoutSeconds(env)) * time.Second
}

// sortedValues are a map's values in the order of its keys.
func sortedValues[V any](m map[string]V) []V {
	values := make([]V, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		values = append(values, m[key])
	}
	return values
}

// podOf finds a Job's newest pod in the cache, nil when there is none.
func (s *Shared) podOf(ctx context.Context, job *batchv1.Job) (*corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := s.List(ctx, pods, client.InNamespace(job.Namespace), client.MatchingFields{indexPodOwner: string(job.UID)}); err != nil {
		return nil, fmt.Errorf("list the Job's pods: %w", err)
	}
	if len(pods.Items) == 0 {
		return nil, nil
	}
	newest := slices.MaxFunc(pods.Items, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return &newest, nil
}
