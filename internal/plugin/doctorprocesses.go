package plugin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"toolcall.dev/operator/internal/docurl"
)

// askedNodes is how many nodes are asked for their kubelet's configuration.
const askedNodes = 20

// checkProcessIDs asks the kubelets whether they bound how many processes a pod has, which takes a right that few have.
func (d *doctor) checkProcessIDs(ctx context.Context) []finding {
	list := &corev1.NodeList{}
	if err := d.client.List(ctx, list); err != nil {
		return nil // The check of the nodes says so.
	}
	var all []finding
	bounded := 0
	for i := range list.Items {
		node := &list.Items[i]
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
			PodPidsLimit *int64 `json:"podPidsLimit"`
		} `json:"kubeletconfig"`
	}
	if err := d.readJSON(ctx, "api/v1/nodes/"+node+"/proxy/configz", &configuration); err != nil {
		return 0, err
	}
	if configuration.Kubelet.PodPidsLimit == nil {
		return 0, nil
	}
	return *configuration.Kubelet.PodPidsLimit, nil
}
