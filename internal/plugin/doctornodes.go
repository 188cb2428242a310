package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	apimachineryversion "k8s.io/apimachinery/pkg/version"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/kubeversion"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// What nodes need.
var (
	// landlockKernel is the first Linux whose Landlock holds programs and files, connectionsKernel the first that holds connections,
	// signalsKernel the first that holds signals.
	landlockKernel    = utilversion.MustParseGeneric("6.2")
	connectionsKernel = utilversion.MustParseGeneric("6.7")
	signalsKernel     = utilversion.MustParseGeneric("6.12")
)

// sampledCalls is how many calls are looked at for what they found on their nodes.
const sampledCalls = 50

// checkNodes tells from versions what nodes can do, and from calls what held them there.
func (d *doctor) checkNodes(ctx context.Context) []finding {
	sampled := d.landlockByNode(ctx)
	list := &corev1.NodeList{}
	if err := d.client.List(ctx, list); err != nil {
		unseen := unseenFinding("list nodes", "ask a cluster administrator to run kubectl toolcall doctor, or run a call: its describe says which walls held", err)
		return append(unseen, sampledFindings(sampled)...)
	}
	var all []finding
	info := &apimachineryversion.Info{}
	// Without an answer, which another check reports, the newest version is assumed.
	_ = d.readJSON(ctx, "version", info)
	mounts := !kubeversion.IsOlder(info.GitVersion, kubeversion.ImageVolumes)
	for i := range list.Items {
		node := &list.Items[i]
		all = append(all, nodeFinding(node, sampled[node.Name], mounts))
	}
	return all
}

// landlockByNode is the version of Landlock that held calls of the namespace, by their nodes. Calls that needed none say
// nothing about their node.
func (d *doctor) landlockByNode(ctx context.Context) map[string]int32 {
	found := map[string]int32{}
	q := callQuery{namespace: d.environmentNamespace(), accept: acceptObject}
	q.options.Limit = sampledCalls
	list := &v1alpha1.ToolCallList{}
	if err := d.request(&q).Do(ctx).Into(list); err != nil {
		return found // Other checks say what is wrong with calls.
	}
	for i := range list.Items {
		s := &list.Items[i].Status
		if s.Isolation != nil && s.Node != "" && s.Isolation.LandlockABI > 0 {
			found[s.Node] = s.Isolation.LandlockABI
		}
	}
	return found
}

// sampledFindings are what calls tell of their nodes, for somebody who can't see nodes.
func sampledFindings(sampled map[string]int32) []finding {
	var all []finding
	for node, abi := range sampled {
		all = append(all, found(stateOK, fmt.Sprintf("Landlock %d held calls on node %s", abi, node), ""))
	}
	slices.SortFunc(all, func(a, b finding) int { return strings.Compare(a.Detail, b.Detail) })
	return all
}

const (
	noLandlock = "calls that have a network, and those under a policy that lists programs or paths, end there with IsolationUnavailable: use nodes with Linux 6.7 or newer and Landlock among lsm=, " +
		"or policies with network.mode: Unrestricted and binaries.enforcement: Name, which is weak"
	noConnections = "calls that have a network end there with IsolationUnavailable: use nodes with Linux 6.7 or newer, or policies with network.mode: Unrestricted or None"
)

// adviceDelivery: the operator looks at the nodes when it starts.
const adviceDelivery = "upgrade the node, or restart the operator, which then copies the runner into each pod: kubectl rollout restart deployment -n toolcall-system toolcall-operator"

// nodeFinding tells what a node can do. abi is the version of Landlock that held calls there, 0 if none is known; mounts says
// that the API server has image volumes.
func nodeFinding(node *corev1.Node, abi int32, mounts bool) finding {
	info := &node.Status.NodeInfo
	about := fmt.Sprintf("%s: Linux %s, %s, kubelet %s", node.Name, info.KernelVersion, info.ContainerRuntimeVersion, info.KubeletVersion)
	if abi > 0 {
		about += fmt.Sprintf(", Landlock %d held calls", abi)
	}
	noImages := kubeversion.NoImageVolumes(info)
	switch {
	case info.OperatingSystem != "" && info.OperatingSystem != "linux":
		return found(stateOK, about+": calls don't run on it", "")
	case !isNodeReady(node):
		return found(stateWarning, about+": not ready", "look at kubectl describe node "+node.Name)
	case kubeversion.IsOlder(info.KubeletVersion, kubeversion.Minimum):
		return found(stateProblem, about, "upgrade the node to Kubernetes "+kubeversion.Minimum+" or newer")
	case mounts && noImages != "":
		return found(stateWarning, about+": it can't mount the runner's image: "+noImages+". Calls start there if the operator has seen the node when it started", adviceDelivery)
	case abi == 0 && isOlder(info.KernelVersion, landlockKernel):
		return found(stateWarning, about, noLandlock)
	case abi == 0 && isOlder(info.KernelVersion, connectionsKernel), abi > 0 && abi < rules.ABIConnections:
		return found(stateWarning, about, noConnections)
	case isOlder(info.KernelVersion, signalsKernel):
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

// isOlder reports whether a version is older than another one. One that can't be read isn't.
func isOlder(text string, than *utilversion.Version) bool {
	running, err := utilversion.ParseGeneric(text)
	return err == nil && running.LessThan(than)
}
