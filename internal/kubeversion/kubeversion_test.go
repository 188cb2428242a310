package kubeversion

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestANodeSaysWhetherItMountsImages(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		system, kubelet, runtime string
		want                     string
	}{
		"all is new":                {"linux", "v1.36.3", "containerd://2.2.9", ""},
		"the first of each":         {"linux", "v1.35.0", "containerd://2.1.0", ""},
		"a kubelet of 1.34":         {"linux", "v1.34.4", "containerd://2.2.9", "kubelet v1.34.4 is older than 1.35"},
		"a vendor's kubelet":        {"linux", "v1.33.5-gke.1080000", "containerd://2.1.4", "kubelet v1.33.5-gke.1080000 is older"},
		"a vendor's new kubelet":    {"linux", "v1.35.1-eks-abc123", "containerd://2.1.4", ""},
		"a release candidate":       {"linux", "v1.36.0-rc.0", "containerd://2.1.4", ""},
		"containerd 1.7":            {"linux", "v1.35.1", "containerd://1.7.27", "containerd 1.7.27 is older than 2.1"},
		"containerd 2.0":            {"linux", "v1.35.1", "containerd://2.0.5", "containerd 2.0.5 is older than 2.1"},
		"a vendor's containerd":     {"linux", "v1.35.4+k3s1", "containerd://2.1.5-k3s1", ""},
		"an old CRI-O":              {"linux", "v1.36.0", "cri-o://1.30.2", "cri-o 1.30.2 is older than 1.31"},
		"a CRI-O":                   {"linux", "v1.36.0", "cri-o://1.36.0", ""},
		"Docker":                    {"linux", "v1.36.0", "docker://28.1.1", "isn't known to mount images"},
		"a node that calls are off": {"windows", "v1.33.0", "containerd://1.7.0", ""},
		"versions nobody can read":  {"linux", "new", "containerd://new", ""},
		"nothing":                   {"", "", "", ""},
	} {
		got := NoImageVolumes(&corev1.NodeSystemInfo{OperatingSystem: tc.system, KubeletVersion: tc.kubelet, ContainerRuntimeVersion: tc.runtime})
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestANodeSaysWhetherUserNamespacesHaveLimitsOfTheirOwn(t *testing.T) {
	t.Parallel()
	for runtime, want := range map[string]bool{
		"containerd://2.4.2": true, "containerd://2.3.0": true, "containerd://2.3.1-k3s1": true, "containerd://2.2.9": false,
		"containerd://new": false, "cri-o://1.36.0": false, "": false,
	} {
		if got := HasOwnLimits(&corev1.NodeSystemInfo{ContainerRuntimeVersion: runtime}); got != want {
			t.Errorf("%q: %t", runtime, got)
		}
	}
}
