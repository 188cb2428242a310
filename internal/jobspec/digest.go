package jobspec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// podDigest is a hash of what of a pod decides which programs it starts, with which identity and rights. What the API server
// fills in and what queues may change isn't among it. The API server drops empty lists.
func podDigest(pod *corev1.PodSpec) string {
	raw, err := json.Marshal(&corev1.PodSpec{
		InitContainers: containerParts(pod.InitContainers), Containers: containerParts(pod.Containers), Volumes: volumeParts(pod.Volumes),
		ServiceAccountName: pod.ServiceAccountName, AutomountServiceAccountToken: pod.AutomountServiceAccountToken,
		HostNetwork: pod.HostNetwork, HostPID: pod.HostPID, HostIPC: pod.HostIPC, HostUsers: pod.HostUsers,
		ShareProcessNamespace: pod.ShareProcessNamespace, RuntimeClassName: pod.RuntimeClassName, SecurityContext: pod.SecurityContext,
		DNSConfig: pod.DNSConfig,
	})
	if err != nil {
		return "" // Not reached: these types always encode.
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// containerParts is what counts of containers. Hooks and probes start programs in them, too. The restart policy makes an init
// container one that runs beside the call.
func containerParts(containers []corev1.Container) []corev1.Container {
	var list []corev1.Container
	for i := range containers {
		c := &containers[i]
		list = append(list, corev1.Container{
			Name: c.Name, Image: c.Image, Command: c.Command, Args: c.Args, Env: withVersions(c.Env), EnvFrom: c.EnvFrom,
			VolumeMounts: c.VolumeMounts, SecurityContext: c.SecurityContext, Lifecycle: c.Lifecycle,
			StartupProbe: c.StartupProbe, LivenessProbe: c.LivenessProbe, ReadinessProbe: c.ReadinessProbe,
			RestartPolicy: c.RestartPolicy, VolumeDevices: c.VolumeDevices,
		})
	}
	return list
}

// volumeParts say where programs may come from: the image with the runner, or a folder of the host. Of a volume that the runner is
// copied into, everything counts: what others can write to would be anybody's runner.
func volumeParts(volumes []corev1.Volume) []corev1.Volume {
	var list []corev1.Volume
	for i := range volumes {
		v := &volumes[i]
		part := corev1.Volume{Name: v.Name}
		switch {
		case v.Image != nil:
			part.Image = &corev1.ImageVolumeSource{Reference: v.Image.Reference}
		case v.Name == runnerVolume:
			part.VolumeSource = v.VolumeSource
		case v.HostPath != nil:
			part.HostPath = &corev1.HostPathVolumeSource{Path: v.HostPath.Path}
		}
		list = append(list, part)
	}
	return list
}

// withVersions fills in what the API server does.
func withVersions(env []corev1.EnvVar) []corev1.EnvVar {
	list := slices.Clone(env)
	for i, v := range list {
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil && v.ValueFrom.FieldRef.APIVersion == "" {
			list[i].ValueFrom = v.ValueFrom.DeepCopy()
			list[i].ValueFrom.FieldRef.APIVersion = "v1"
		}
	}
	return list
}
