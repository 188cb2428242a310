package doctor

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"toolcall.dev/operator/internal/docurl"
	"toolcall.dev/operator/internal/kubeversion"
)

// What nodes need: gateKernel is the first Linux that holds programs and connections, landlockKernel the first that can have Landlock,
// which holds files, signalsKernel the first that holds signals.
const (
	gateKernel     = "5.10"
	landlockKernel = "5.13"
	signalsKernel  = "6.12"
)

// checkNodes tells from versions what nodes can do.
func (d *doctor) checkNodes(context.Context) []finding {
	if d.nodesErr != nil {
		return unseenFinding("list nodes", "ask a cluster administrator to run kubectl toolcall doctor, or run a call: its describe says which walls held", d.nodesErr)
	}
	var all []finding
	// Without a version, which another check reports, the newest one is assumed.
	mounts := !kubeversion.IsOlder(d.version, kubeversion.ImageVolumes)
	for i := range d.nodes {
		all = append(all, nodeFinding(&d.nodes[i], mounts, d.namespace))
	}
	return all
}

const (
	noGate = "calls that have a network, and those under a policy that lists programs or paths, can end there with IsolationUnavailable: use nodes with Linux 5.10 or newer, " +
		"or policies with network.mode: Unrestricted and binaries.enforcement: Name, which is weak"
	noLandlock = "calls under a policy with paths under files end there with IsolationUnavailable, and so do those of sessions that have a network or a list of programs: " +
		"use nodes with Landlock among lsm= (Linux 5.13 or newer; 5.19 for moves between directories)"
)

// nodeFinding tells what a node can do. mounts says that the API server has image volumes. The operator, which looks at the nodes when it
// starts, runs in the namespace.
func nodeFinding(node *corev1.Node, mounts bool, namespace string) finding {
	info := &node.Status.NodeInfo
	about := fmt.Sprintf("%s: Linux %s, %s, kubelet %s", node.Name, info.KernelVersion, info.ContainerRuntimeVersion, info.KubeletVersion)
	noImages := kubeversion.NoImageVolumes(info)
	switch {
	case info.OperatingSystem != "" && info.OperatingSystem != "linux":
		return found(stateOK, about+": calls don't run on it", "")
	case !isNodeReady(node):
		return found(stateWarning, about+": not ready", "look at kubectl describe node "+node.Name)
	case kubeversion.IsOlder(info.KubeletVersion, kubeversion.Minimum):
		return found(stateProblem, about, "upgrade the node to Kubernetes "+kubeversion.Minimum+" or newer")
	case mounts && noImages != "":
		advice := "upgrade the node, or restart the operator, which then copies the runner into each pod: " +
			"kubectl rollout restart deployment -n " + namespace + " -l " + labelName + "=" + operatorLabel
		return found(stateWarning, about+": it can't mount the runner's image: "+noImages+". Calls start there if the operator has seen the node when it started", advice)
	case kubeversion.IsOlder(info.KernelVersion, gateKernel):
		return found(stateWarning, about, noGate)
	case kubeversion.IsOlder(info.KernelVersion, landlockKernel):
		return found(stateWarning, about, noLandlock)
	case kubeversion.IsOlder(info.KernelVersion, signalsKernel):
		return found(stateOK, about+": holds programs, files and connections, but no signals, for which Linux 6.12 is needed", "")
	default:
		return found(stateOK, about, "")
	}
}

func isNodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// askedNodes is how many nodes are asked for their kubelet's configuration.
const askedNodes = 20

// checkProcessIDs asks the kubelets whether they bound how many processes a pod has, which takes a right that few have.
func (d *doctor) checkProcessIDs(ctx context.Context) []finding {
	var all []finding
	bounded := 0
	for i := range d.nodes {
		node := &d.nodes[i]
		if !isNodeReady(node) || bounded+len(all) >= askedNodes {
			continue
		}
		limit, err := d.podPidsLimit(ctx, node.Name)
		switch {
		case apierrors.IsForbidden(err):
			return append(all, found(stateUnknown, "you have no permission to read the kubelets' podPidsLimit (get nodes/proxy)",
				"ask a cluster administrator to run kubectl toolcall doctor, or look at the configuration of the kubelets"))
		case err != nil:
			all = append(all, found(stateUnknown, fmt.Sprintf("%s: its kubelet's podPidsLimit can't be read: %v", node.Name, err), "look at the configuration of the kubelet"))
		case limit <= 0:
			all = append(all, found(stateWarning, node.Name+": its kubelet has no podPidsLimit: one call can take all process IDs of the node",
				"set podPidsLimit in the kubelet's configuration, for example to 1024: "+docurl.Page("operations.md#isolation")))
		default:
			bounded++
		}
	}
	if bounded > 0 {
		all = append(all, found(stateOK, fmt.Sprintf("podPidsLimit bounds the processes of a pod on %d of the %d nodes that were asked", bounded, bounded+len(all)), ""))
	}
	return all
}

// podPidsLimit is how many processes a node's pods may have each; -1 or 0 for any number.
func (d *doctor) podPidsLimit(ctx context.Context, node string) (int64, error) {
	var configuration struct {
		Kubelet struct {
			PodPidsLimit int64 `json:"podPidsLimit"`
		} `json:"kubeletconfig"`
	}
	err := readJSON(ctx, d.Cluster, "api/v1/nodes/"+node+"/proxy/configz", &configuration)
	return configuration.Kubelet.PodPidsLimit, err
}
