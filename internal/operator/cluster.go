package operator

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/kubeversion"
	"toolcall.dev/operator/internal/metrics"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=list
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,resourceNames=kubernetes,verbs=get
// +kubebuilder:rbac:groups=networking.k8s.io,resources=servicecidrs,verbs=list

// nodesPage is how many nodes are read at a time.
const nodesPage = 250

// clusterFeatures are what the cluster has of what the operator can do without. It is found out once, when the operator starts:
// nothing that is safe or not depends on it.
type clusterFeatures struct {
	version string
	// noImageVolumes says why an init container brings the runner; empty where an image volume does.
	noImageVolumes string
}

// findFeatures asks the cluster what it has. The error is an unsupportedError where the cluster lacks what can't be made up for.
func findFeatures(ctx context.Context, clients kubernetes.Interface, o *Options) (*clusterFeatures, error) {
	info, err := clients.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("ask the cluster for its version: %w", err)
	}
	f := &clusterFeatures{version: info.GitVersion}
	if kubeversion.IsOlder(f.version, kubeversion.Minimum) {
		return nil, &unsupportedError{fmt.Errorf("this cluster runs Kubernetes %s: %s or newer is needed", f.version, kubeversion.Minimum)}
	}
	if err := checkAdmission(clients); err != nil {
		return nil, err
	}
	switch o.RunnerDelivery {
	case DeliverCopied:
		f.noImageVolumes = "--runner-delivery is " + DeliverCopied
	case DeliverAuto:
		f.noImageVolumes = findImageVolumes(ctx, clients, o)
	}
	return f, nil
}

// awaitFeatures waits until the cluster says what it has.
func awaitFeatures(ctx context.Context, clients kubernetes.Interface, o *Options, log logr.Logger) (found *clusterFeatures, err error) {
	err = await(ctx, log, "what the cluster has", func(ctx context.Context) (err error) {
		found, err = findFeatures(ctx, clients, o)
		return err
	})
	return found, err
}

// checkAdmission refuses a cluster without ValidatingAdmissionPolicy: nothing vouches for requesters there.
func checkAdmission(clients kubernetes.Interface) error {
	group := admissionv1.SchemeGroupVersion.String()
	served, err := clients.Discovery().ServerResourcesForGroupVersion(group)
	if err != nil {
		return fmt.Errorf("ask the cluster what it serves in %s: %w", group, err)
	}
	if !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == "validatingadmissionpolicies" }) {
		return &unsupportedError{fmt.Errorf("this cluster serves no validatingadmissionpolicies in %s, which vouch for the requesters of calls", group)}
	}
	return nil
}

// findImageVolumes says why pods can't have image volumes; empty when they can. It asks the API server, then looks at the nodes.
func findImageVolumes(ctx context.Context, clients kubernetes.Interface, o *Options) (why string) {
	namespace := o.Namespace
	if len(o.Namespaces) > 0 {
		namespace = o.Namespaces[0]
	}
	_, err := clients.BatchV1().Jobs(namespace).Create(ctx, jobspec.ImageVolumeProbe(namespace), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case jobspec.HasImageVolumes(err):
		return findNodeWithout(ctx, clients)
	case err == nil, apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return "the API server takes no image volumes"
	}
	// A webhook in between may fail. What is copied works everywhere.
	return "the API server can't be asked whether it takes image volumes: " + err.Error()
}

// findNodeWithout names a node that can't mount images, or says why that can't be told; empty when there is none.
func findNodeWithout(ctx context.Context, clients kubernetes.Interface) (why string) {
	for options := (metav1.ListOptions{Limit: nodesPage}); ; {
		list, err := clients.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			return "the nodes can't be listed: " + err.Error()
		}
		for i := range list.Items {
			if why := kubeversion.NoImageVolumes(&list.Items[i].Status.NodeInfo); why != "" {
				return "node " + list.Items[i].Name + ": " + why
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return ""
		}
	}
}

// report says in the log and the metrics what was found.
func (f *clusterFeatures) report(log logr.Logger) {
	log.Info("Found what the cluster has", "kubernetes", f.version)
	if f.noImageVolumes != "" {
		log.Info("An init container brings the runner into each pod", "reason", f.noImageVolumes)
	}
	metrics.RegisterClusterFeatures(map[string]bool{"ImageVolume": f.noImageVolumes == ""})
}
