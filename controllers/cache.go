package controllers

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

// CacheOptions keep in memory what the reconcilers read, and nothing else: of calls those that have not ended; of Jobs
// and pods those that the operator made, of each the few fields that count, and of pods none that ended well: their
// calls have ended as well, mostly, and who looks for one that isn't there asks the API server; of the cluster's
// admission policies the two that are the project's own.
func CacheOptions() cache.Options {
	own := labels.SelectorFromSet(labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})
	notSucceeded := fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded))
	named := func(name string) cache.ByObject {
		return cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
	}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&networkingv1.NetworkPolicy{}: {Label: own},
			&batchv1.Job{}:                {Label: own, Transform: transform(slimJob)},
			&corev1.Pod{}:                 {Label: own, Field: notSucceeded, Transform: transform(slimPod)},
			&v1alpha1.ToolCall{}:          {Field: InFlight()},

			&admissionv1.MutatingAdmissionPolicy{}:          named(StampPolicy),
			&admissionv1.MutatingAdmissionPolicyBinding{}:   named(StampPolicy),
			&admissionv1.ValidatingAdmissionPolicy{}:        named(CheckPolicy),
			&admissionv1.ValidatingAdmissionPolicyBinding{}: named(CheckPolicy),
		},
	}
}

// transform adapts a function of one type, and drops managedFields everywhere.
func transform[T client.Object](slim func(T)) toolscache.TransformFunc {
	return func(o any) (any, error) {
		object, ok := o.(T)
		if !ok {
			return nil, fmt.Errorf("the cache was given a %T", o)
		}
		object.SetManagedFields(nil)
		slim(object)
		return object, nil
	}
}

func slimPod(pod *corev1.Pod) {
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
}

// slimJob leaves out of a call's Job that is over even what was decided: callJob asks for that if it is still needed.
// Such Jobs stay for minutes, and that is most of them.
func slimJob(job *batchv1.Job) {
	job.Spec = batchv1.JobSpec{Suspend: job.Spec.Suspend}
	if jobOver(job) && len(ownerCall(job)) > 0 {
		job.Labels, job.Annotations = nil, nil
	}
}

// Fields that the cache is indexed by.
const (
	indexDefault  = "default"
	indexPodOwner = "pod.owner"
	indexActive   = "call.active"
	indexInFlight = "call.inFlight"
	indexJob      = "call.job"
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
		{&v1alpha1.ToolCall{}, indexJob, jobOfCall},
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

// jobOfCall is the Job whose pod a call that has not ended was given to.
func jobOfCall(o client.Object) []string {
	call, ok := o.(*v1alpha1.ToolCall)
	if !ok || call.Status.Phase.Terminal() || call.Status.Runner == nil {
		return nil
	}
	return []string{call.Status.Job}
}

// poolOf is the name of the environment whose warm pool a Job says that it belongs to; none once a call adopted it.
func poolOf(o client.Object) []string {
	name := o.GetAnnotations()[jobspec.AnnotationPool]
	if name == "" || metav1.GetControllerOf(o) != nil {
		return nil
	}
	return []string{name}
}

// ownerCall is the UID of the call that has a Job.
func ownerCall(o client.Object) []string {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != "ToolCall" {
		return nil
	}
	return []string{string(owner.UID)}
}
