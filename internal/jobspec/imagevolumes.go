package jobspec

import (
	"errors"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// ImageVolumeProbe is a Job to create in a dry run, to find out whether the API server takes image volumes. It has an image
// volume and another one of the same name. An API server without image volumes drops the first silently, and takes the rest;
// one that has them refuses two of a name, before it asks admission, which may refuse the operator every Job.
func ImageVolumeProbe(namespace string) *batchv1.Job {
	labels := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tc-image-volume-probe", Labels: labels},
		Spec: batchv1.JobSpec{
			Suspend: ptr.To(true),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					RestartPolicy:   corev1.RestartPolicyNever,
					SecurityContext: podSecurity(nil, DefaultUser),
					Containers: []corev1.Container{{
						Name: ContainerName, Image: "probe", Resources: resources(corev1.ResourceRequirements{}), SecurityContext: containerSecurity(nil),
					}},
					Volumes: []corev1.Volume{
						{Name: runnerVolume, VolumeSource: runnerSource(Runtime{RunnerImage: "probe"})},
						{Name: runnerVolume, VolumeSource: runnerSource(Runtime{CopyRunner: true})},
					},
				},
			},
		},
	}
}

// HasImageVolumes says that an answer to the probe proves that the API server takes image volumes.
func HasImageVolumes(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Type == metav1.CauseTypeFieldValueDuplicate && cause.Field == "spec.template.spec.volumes[1].name"
	})
}
