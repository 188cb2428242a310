package operator

import (
	"fmt"
	"unique"

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
	"toolcall.dev/operator/controllers"
)

// cacheOptions keep in memory what the reconcilers read, and nothing else: of Jobs and pods those that the
// operator made, of each the few fields that count; of finished calls what retention needs; of the cluster's
// admission policies the two that are the project's own.
func cacheOptions() cache.Options {
	own := labels.SelectorFromSet(labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})
	named := func(name string) cache.ByObject {
		return cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
	}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&networkingv1.NetworkPolicy{}: {Label: own},
			&batchv1.Job{}:                {Label: own, Transform: transform(slimJob)},
			&corev1.Pod{}:                 {Label: own, Transform: transform(slimPod)},
			&v1alpha1.ToolCall{}:          {Transform: transform(slimCall)},

			&admissionv1.MutatingAdmissionPolicy{}:          named(controllers.StampPolicy),
			&admissionv1.MutatingAdmissionPolicyBinding{}:   named(controllers.StampPolicy),
			&admissionv1.ValidatingAdmissionPolicy{}:        named(controllers.CheckPolicy),
			&admissionv1.ValidatingAdmissionPolicyBinding{}: named(controllers.CheckPolicy),
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

func slimJob(job *batchv1.Job) {
	job.Spec = batchv1.JobSpec{Suspend: job.Spec.Suspend}
}

func slimPod(pod *corev1.Pod) {
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
}

// slimCall keeps of a finished call what retention and late runners need: not what ran, nor its output.
func slimCall(call *v1alpha1.ToolCall) {
	if !call.Status.Phase.Terminal() {
		return
	}
	call.Annotations = nil
	call.Spec = v1alpha1.ToolCallSpec{TTLSecondsAfterFinished: call.Spec.TTLSecondsAfterFinished}
	status := &call.Status
	var finished []metav1.Condition
	for _, c := range status.Conditions {
		if c.Type == v1alpha1.ConditionFinished {
			c.Message = ""
			finished = append(finished, c)
		}
	}
	shareStrings(call, finished)
	slim := v1alpha1.ToolCallStatus{Phase: status.Phase, Reason: status.Reason, Conditions: finished, Runner: status.Runner}
	if status.Environment != nil {
		slim.Environment = &v1alpha1.ResolvedEnvironment{Name: unique.Make(status.Environment.Name).Value()}
	}
	call.Status = slim
}

// shareStrings keeps one copy of the strings that finished calls have in common: decoding makes one for each.
func shareStrings(call *v1alpha1.ToolCall, conditions []metav1.Condition) {
	share := func(text *string) { *text = unique.Make(*text).Value() }
	for _, text := range []*string{&call.Kind, &call.APIVersion, &call.Namespace, (*string)(&call.Status.Phase), &call.Status.Reason} {
		share(text)
	}
	for i := range conditions {
		c := &conditions[i]
		for _, text := range []*string{&c.Type, (*string)(&c.Status), &c.Reason} {
			share(text)
		}
	}
}
