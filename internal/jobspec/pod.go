package jobspec

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// volumes are the environment's and ours: the runner, and the writable directories that the environment
// doesn't mount itself. An image that has the runner has those too: each kind of volume, whatever it holds, makes
// a pod start later.
func volumes(env *v1alpha1.ExecutionEnvironmentSpec, runtime Runtime) []corev1.Volume {
	list := append([]corev1.Volume{}, env.Volumes...)
	if env.RunnerPath != "" {
		return list
	}
	list = append(list, corev1.Volume{Name: runnerVolume, VolumeSource: runnerSource(runtime)})
	for _, d := range writable(env) {
		list = append(list, corev1.Volume{Name: d.volume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	return list
}

func mounts(env *v1alpha1.ExecutionEnvironmentSpec) []corev1.VolumeMount {
	list := append([]corev1.VolumeMount{}, env.VolumeMounts...)
	if env.RunnerPath != "" {
		return list
	}
	for i := range list {
		// An environment may mount the runner's volume elsewhere too. A call that could write there would be the runner of
		// itself, and hold its pod's credential.
		if list[i].Name == runnerVolume {
			list[i].ReadOnly = true
		}
	}
	list = append(list, corev1.VolumeMount{Name: runnerVolume, MountPath: runnerMount, ReadOnly: true})
	for _, d := range writable(env) {
		list = append(list, corev1.VolumeMount{Name: d.volume, MountPath: d.path})
	}
	return list
}

type directory struct{ volume, path string }

// writable are the directories that every call may write to and that the environment doesn't mount.
func writable(env *v1alpha1.ExecutionEnvironmentSpec) []directory {
	var list []directory
	for _, d := range []directory{{workspaceVolume, "/workspace"}, {tmpVolume, "/tmp"}} {
		if !slices.ContainsFunc(env.VolumeMounts, func(m corev1.VolumeMount) bool { return path.Clean(m.MountPath) == d.path }) {
			list = append(list, d)
		}
	}
	return list
}

// resources bounds what a call may take when the environment says nothing: a call must not be able to starve
// its node. The requests are small so that many calls fit on a node.
func resources(r corev1.ResourceRequirements) corev1.ResourceRequirements {
	if r.Limits != nil || r.Requests != nil || r.Claims != nil {
		return r
	}
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("10m"),
			corev1.ResourceMemory: resource.MustParse("32Mi"),
			// Without a request of its own the limit would be requested.
			corev1.ResourceEphemeralStorage: resource.MustParse("16Mi"),
		},
		Limits: corev1.ResourceList{
			corev1.ResourceMemory:           resource.MustParse("1Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("4Gi"),
		},
	}
}

// userOf is the user that a pod runs as unless its environment names another. In a user namespace of its own it needs none: there are
// only the first 65536.
func userOf(p jobParts) int64 {
	if !ptr.Deref(p.env.Spec.HostUsers, true) {
		return DefaultUser
	}
	return p.runtime.Users.UserOf(p.namespace)
}

// podSecurity fills what the environment leaves open with what the restricted standard asks for, and with a user.
func podSecurity(given *corev1.PodSecurityContext, user int64) *corev1.PodSecurityContext {
	sc := given.DeepCopy()
	if sc == nil {
		sc = &corev1.PodSecurityContext{}
	}
	fill(&sc.RunAsNonRoot, true)
	fill(&sc.RunAsUser, user)
	fill(&sc.RunAsGroup, user)
	fill(&sc.FSGroup, user)
	fill(&sc.FSGroupChangePolicy, corev1.FSGroupChangeOnRootMismatch)
	if sc.SeccompProfile == nil {
		sc.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	return sc
}

func containerSecurity(given *corev1.SecurityContext) *corev1.SecurityContext {
	sc := given.DeepCopy()
	if sc == nil {
		sc = &corev1.SecurityContext{}
	}
	fill(&sc.AllowPrivilegeEscalation, false)
	if sc.Capabilities == nil {
		sc.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	}
	return sc
}

func fill[T any](field **T, value T) {
	if *field == nil {
		*field = ptr.To(value)
	}
}
