package jobspec

import (
	"errors"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// ImageVolumeProbe is a Job to create in a dry run, to find out whether the API server takes image volumes: one that doesn't
// drops what it doesn't know, and refuses the volume that is left. It is suspended, should it ever be created.
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
					SecurityContext: podSecurity(nil),
					Containers: []corev1.Container{{
						Name: ContainerName, Image: "probe", Resources: resources(corev1.ResourceRequirements{}), SecurityContext: containerSecurity(nil),
					}},
					Volumes: []corev1.Volume{{Name: runnerVolume, VolumeSource: runnerSource(Runtime{RunnerImage: "probe"})}},
				},
			},
		},
	}
}

// LacksImageVolumes says that an answer to the probe is the API server's word against image volumes. Admission asks later, so
// that another refusal means that the API server took them.
func LacksImageVolumes(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if strings.HasPrefix(cause.Field, "spec.template.spec.volumes[") {
			return true
		}
	}
	return false
}
