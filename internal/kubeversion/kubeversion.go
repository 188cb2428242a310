// Package kubeversion says from which version on Kubernetes and container runtimes have what the project uses, and what a
// node's versions mean for it. It is pure; docs/install.md has the same as a table.
package kubeversion

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
)

const (
	// Minimum is the oldest Kubernetes that the project runs on: the oldest one that its tests run against.
	Minimum = "1.33"
	// ImageVolumes is the first Kubernetes, API server and kubelet, in which image volumes are on by default. 1.33 and 1.34
	// have them off.
	ImageVolumes = "1.35"
)

// imageVolumeRuntimes are the first versions of container runtimes that mount images, by the runtime's name in a node's status.
var imageVolumeRuntimes = map[string]string{"containerd": "2.1", "cri-o": "1.31"}

// IsOlder reports whether a version is older than another one. One that can't be read isn't.
func IsOlder(text, than string) bool {
	running, err := utilversion.ParseGeneric(text)
	return err == nil && running.LessThan(utilversion.MustParseGeneric(than))
}

// OwnLimits is the first containerd that has the kernel count what a pod with hostUsers: false uses for the pod's own users. Earlier
// ones, and others as far as it is known, have it counted for root of the node too.
const OwnLimits = "2.3"

// HasOwnLimits reports whether what a pod with hostUsers: false uses on a node counts for its own users alone.
func HasOwnLimits(node *corev1.NodeSystemInfo) bool {
	name, running, _ := strings.Cut(node.ContainerRuntimeVersion, "://")
	version, err := utilversion.ParseGeneric(running)
	return name == "containerd" && err == nil && version.AtLeast(utilversion.MustParseGeneric(OwnLimits))
}

// NoImageVolumes says why a node can't mount images as volumes; empty when it can, as far as its versions tell, and for a
// node that calls don't run on.
func NoImageVolumes(node *corev1.NodeSystemInfo) string {
	if node.OperatingSystem != "" && node.OperatingSystem != "linux" {
		return ""
	}
	if IsOlder(node.KubeletVersion, ImageVolumes) {
		return fmt.Sprintf("kubelet %s is older than %s", node.KubeletVersion, ImageVolumes)
	}
	name, running, _ := strings.Cut(node.ContainerRuntimeVersion, "://")
	first, ok := imageVolumeRuntimes[name]
	switch {
	case name == "":
		return ""
	case !ok:
		return fmt.Sprintf("the container runtime %s isn't known to mount images", node.ContainerRuntimeVersion)
	case IsOlder(running, first):
		return fmt.Sprintf("%s %s is older than %s", name, running, first)
	}
	return ""
}
