package jobspec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// podPart is what of a pod decides which programs it starts, with which identity and rights. What the API server fills
// in and what queues may change isn't among it.
type podPart struct {
	Init, Containers              []containerPart
	Volumes                       []volumePart
	ServiceAccount                string
	ServiceAccountToken           *bool
	HostNetwork, HostPID, HostIPC bool
	HostUsers, SharedProcesses    *bool
	RuntimeClass                  *string
	Security                      *corev1.PodSecurityContext
	// DNS is empty for a pod that has the cluster's.
	DNS *corev1.PodDNSConfig `json:",omitempty"`
}

// containerPart is what counts of a container. Hooks and probes start programs in it, too. The API server drops empty
// lists.
type containerPart struct {
	Name, Image                  string
	Command, Args                []string               `json:",omitempty"`
	Env                          []corev1.EnvVar        `json:",omitempty"`
	EnvFrom                      []corev1.EnvFromSource `json:",omitempty"`
	Mounts                       []corev1.VolumeMount   `json:",omitempty"`
	Security                     *corev1.SecurityContext
	Lifecycle                    *corev1.Lifecycle
	Startup, Liveness, Readiness *corev1.Probe
	// Restart makes an init container one that runs beside the call.
	Restart *corev1.ContainerRestartPolicy `json:",omitempty"`
	Devices []corev1.VolumeDevice          `json:",omitempty"`
}

// volumePart says where programs may come from: the image with the runner, or a folder of the host. Of a volume that the
// runner is copied into, everything counts: what others can write to would be anybody's runner.
type volumePart struct {
	Name            string
	Image, HostPath string
	Runner          *corev1.VolumeSource `json:",omitempty"`
}

// podDigest is a hash of the pod's part.
func podDigest(pod *corev1.PodSpec) string {
	raw, err := json.Marshal(podPart{
		Init: containerParts(pod.InitContainers), Containers: containerParts(pod.Containers), Volumes: volumeParts(pod.Volumes),
		ServiceAccount: pod.ServiceAccountName, ServiceAccountToken: pod.AutomountServiceAccountToken,
		HostNetwork: pod.HostNetwork, HostPID: pod.HostPID, HostIPC: pod.HostIPC, HostUsers: pod.HostUsers,
		SharedProcesses: pod.ShareProcessNamespace, RuntimeClass: pod.RuntimeClassName, Security: pod.SecurityContext,
		DNS: pod.DNSConfig,
	})
	if err != nil {
		return "" // Not reached: these types always encode.
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

func containerParts(containers []corev1.Container) []containerPart {
	var list []containerPart
	for i := range containers {
		c := &containers[i]
		list = append(list, containerPart{
			Name: c.Name, Image: c.Image, Command: c.Command, Args: c.Args, Env: withVersions(c.Env), EnvFrom: c.EnvFrom,
			Mounts: c.VolumeMounts, Security: c.SecurityContext, Lifecycle: c.Lifecycle,
			Startup: c.StartupProbe, Liveness: c.LivenessProbe, Readiness: c.ReadinessProbe,
			Restart: c.RestartPolicy, Devices: c.VolumeDevices,
		})
	}
	return list
}

func volumeParts(volumes []corev1.Volume) []volumePart {
	var list []volumePart
	for i := range volumes {
		part := volumePart{Name: volumes[i].Name}
		if image := volumes[i].Image; image != nil {
			part.Image = image.Reference
		}
		if folder := volumes[i].HostPath; folder != nil {
			part.HostPath = folder.Path
		}
		if volumes[i].Name == runnerVolume && volumes[i].Image == nil {
			part.Runner = &volumes[i].VolumeSource
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
