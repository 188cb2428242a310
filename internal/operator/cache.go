package operator

import (
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
	"toolcall.dev/operator/controllers"
)

// cacheOptions keep in memory what the reconcilers read, and nothing else: of calls those that have not ended; of Jobs
// and pods those that the operator made, of each the few fields that count; of the cluster's admission policies the two
// that are the project's own.
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
			&v1alpha1.ToolCall{}:          {Field: controllers.InFlight()},

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
