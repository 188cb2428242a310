package jobspec

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

const (
	// RunnerContainerName is the init container that copies the runner into its volume, where there are no image volumes.
	RunnerContainerName = "toolcall-runner"
	// runnerInstall is the runner's command that copies the runner.
	runnerInstall = "install"
	// runnerInImage is where the runner's own image has it.
	runnerInImage = "/runner"
	// runnerVolumeSize is some times the size of the runner: a copy that grows beyond it gets the pod evicted, not the node
	// filled.
	runnerVolumeSize = "128Mi"
	// annotationDefaultContainer names, on a pod, the container that kubectl logs and exec take.
	annotationDefaultContainer = "kubectl.kubernetes.io/default-container"
)

// runnerSource is what the runner comes from: its image as a volume, or an empty volume that an init container fills.
func runnerSource(runtime Runtime) corev1.VolumeSource {
	if runtime.CopyRunner {
		return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse(runnerVolumeSize))}}
	}
	return corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: runtime.RunnerImage, PullPolicy: corev1.PullIfNotPresent}}
}

// initContainers has the container that brings the runner, if one is needed.
//
// It is the only one that may write to the runner's volume: the call's own container mounts it read-only. It asks for no
// more than the call does, so that it costs no quota: what a pod needs is the larger of the two.
func initContainers(env *v1alpha1.ExecutionEnvironmentSpec, runtime Runtime) []corev1.Container {
	if env.RunnerPath != "" || !runtime.CopyRunner {
		return nil
	}
	security := containerSecurity(nil)
	security.ReadOnlyRootFilesystem = ptr.To(true)
	return []corev1.Container{{
		Name:                     RunnerContainerName,
		Image:                    runtime.RunnerImage,
		ImagePullPolicy:          corev1.PullIfNotPresent,
		Command:                  []string{runnerInImage, runnerInstall, runnerPath},
		Resources:                copyResources(env.Resources),
		VolumeMounts:             []corev1.VolumeMount{{Name: runnerVolume, MountPath: runnerMount}},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		SecurityContext:          security,
	}}
}

// copyResources are the call's own, as far as they are the machine's: copying a file needs no device and no claim.
func copyResources(of corev1.ResourceRequirements) corev1.ResourceRequirements {
	all := resources(of)
	plain := func(list corev1.ResourceList) corev1.ResourceList {
		kept := maps.Clone(list)
		maps.DeleteFunc(kept, func(name corev1.ResourceName, _ resource.Quantity) bool {
			return name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage
		})
		return kept
	}
	return corev1.ResourceRequirements{Requests: plain(all.Requests), Limits: plain(all.Limits)}
}
