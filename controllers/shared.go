package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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

// Fields that the cache is indexed by.
const (
	indexDefault  = "default"
	indexPodOwner = "pod.owner"
	indexActive   = "call.active"
	indexInFlight = "call.inFlight"
	indexRunner   = "call.runner"
	indexPool     = "job.pool"
	indexCall     = "job.call"
)

// SetupCache has the cache find objects by the fields that the reconcilers ask for, and fill with every kind that they
// read before they begin: one that nobody watches would be filled while the first call waits for it.
func SetupCache(objects cache.Cache) error {
	ctx := context.Background()
	for _, index := range []struct {
		object client.Object
		field  string
		value  client.IndexerFunc
	}{
		{&v1alpha1.ExecutionEnvironment{}, indexDefault, defaultValue(v1alpha1.AnnotationDefaultEnvironment)},
		{&v1alpha1.ExecutionPolicy{}, indexDefault, defaultValue(v1alpha1.AnnotationDefaultPolicy)},
		{&corev1.Pod{}, indexPodOwner, podOwner},
		{&v1alpha1.ToolCall{}, indexActive, activeEnvironment},
		{&v1alpha1.ToolCall{}, indexInFlight, inFlight},
		{&v1alpha1.ToolCall{}, indexRunner, podOfCall},
		{&batchv1.Job{}, indexPool, poolOf},
		{&batchv1.Job{}, indexCall, ownerCall},
	} {
		if err := objects.IndexField(ctx, index.object, index.field, index.value); err != nil {
			return fmt.Errorf("%T by %s: %w", index.object, index.field, err)
		}
	}
	for _, read := range []client.Object{
		&v1alpha1.Skill{}, &networkingv1.NetworkPolicy{},
		&admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{},
		&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{},
	} {
		if _, err := objects.GetInformer(ctx, read, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("%T: %w", read, err)
		}
	}
	return nil
}

func defaultValue(annotation string) client.IndexerFunc {
	return func(o client.Object) []string {
		if o.GetAnnotations()[annotation] == "true" {
			return []string{"true"}
		}
		return nil
	}
}

// podOwner is the UID of the Job that made a pod.
func podOwner(o client.Object) []string {
	for _, owner := range o.GetOwnerReferences() {
		if owner.Controller != nil && *owner.Controller && owner.Kind == "Job" {
			return []string{string(owner.UID)}
		}
	}
	return nil
}

// activeEnvironment is the environment of a call that was let into it and has not ended.
func activeEnvironment(o client.Object) []string {
	call, ok := o.(*v1alpha1.ToolCall)
	if !ok || call.Status.Phase.Terminal() || call.Status.Job == "" || call.Status.Environment == nil || call.Status.Environment.Name == "" {
		return nil
	}
	return []string{call.Status.Environment.Name}
}

// inFlight is "true" for a call that has not ended.
func inFlight(o client.Object) []string {
	if call, ok := o.(*v1alpha1.ToolCall); ok && !call.Status.Phase.Terminal() {
		return []string{"true"}
	}
	return nil
}

// countInFlight counts the calls that have not ended; 0 while the cache isn't filled.
func countInFlight(reader client.Reader) int {
	calls := &v1alpha1.ToolCallList{}
	err := reader.List(context.Background(), calls, client.MatchingFields{indexInFlight: "true"},
		client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err != nil {
		return 0
	}
	return len(calls.Items)
}

// podOfCall is the UID of the pod that a call which has not ended was given to.
func podOfCall(o client.Object) []string {
	call, ok := o.(*v1alpha1.ToolCall)
	if !ok || call.Status.Phase.Terminal() || call.Status.Runner == nil {
		return nil
	}
	return []string{call.Status.Runner.PodUID}
}

// poolOf is the UID of the environment whose warm pool a Job belongs to; none once a call adopted it.
func poolOf(o client.Object) []string {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != "ExecutionEnvironment" {
		return nil
	}
	return []string{string(owner.UID)}
}

// ownerCall is the UID of the call that has a Job.
func ownerCall(o client.Object) []string {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != "ToolCall" {
		return nil
	}
	return []string{string(owner.UID)}
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
