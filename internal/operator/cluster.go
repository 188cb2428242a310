package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

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
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies,resourceNames=toolcall-requested-by;toolcall-session-requested-by,verbs=get

// stampPolicies are the MutatingAdmissionPolicies that fill spec.requestedBy in.
var stampPolicies = []string{"toolcall-requested-by", "toolcall-session-requested-by"}

// stampTimeout is how long the operator waits for the policies that it can do without.
const stampTimeout = 5 * time.Second

// nodesPage is how many nodes are read at a time.
const nodesPage = 250

// clusterFeatures are what the cluster has of what the operator can do without. It is found out once, when the operator starts:
// nothing that is safe or not depends on it.
type clusterFeatures struct {
	version string
	// unstamped says why clients fill spec.requestedBy in themselves; empty where admission does.
	unstamped string
	// noImageVolumes says why an init container brings the runner; empty where an image volume does.
	noImageVolumes string
}

// findFeatures asks the cluster what it has. The error is an unsupportedError where the cluster lacks what can't be made up for.
func findFeatures(ctx context.Context, clients kubernetes.Interface, o *Options, log logr.Logger) (*clusterFeatures, error) {
	info, err := clients.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("ask the cluster for its version: %w", err)
	}
	f := &clusterFeatures{version: info.GitVersion}
	if kubeversion.IsOlder(f.version, kubeversion.Minimum) {
		return nil, &unsupportedError{fmt.Errorf("this cluster runs Kubernetes %s: %s or newer is needed", f.version, kubeversion.Minimum)}
	}
	if f.unstamped, err = findStamp(ctx, clients, log); err != nil {
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
		found, err = findFeatures(ctx, clients, o, log)
		return err
	})
	return found, err
}

// findStamp says why nothing fills spec.requestedBy in; empty when something does. A cluster without
// ValidatingAdmissionPolicy can't check it either, and is refused.
func findStamp(ctx context.Context, clients kubernetes.Interface, log logr.Logger) (why string, err error) {
	group := admissionv1.SchemeGroupVersion.String()
	served, err := clients.Discovery().ServerResourcesForGroupVersion(group)
	if err != nil {
		return "", fmt.Errorf("ask the cluster what it serves in %s: %w", group, err)
	}
	serves := func(resource string) bool {
		return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == resource })
	}
	if !serves("validatingadmissionpolicies") {
		return "", &unsupportedError{fmt.Errorf("this cluster serves no validatingadmissionpolicies in %s, which vouch for the requesters of calls", group)}
	}
	if !serves("mutatingadmissionpolicies") {
		return "the cluster serves no mutatingadmissionpolicies in " + group, nil
	}
	// What is installed at the same moment may come later.
	ctx, cancel := context.WithTimeout(ctx, stampTimeout)
	defer cancel()
	err = await(ctx, log, "the MutatingAdmissionPolicies", func(ctx context.Context) error {
		for _, name := range stampPolicies {
			if _, err := clients.AdmissionregistrationV1().MutatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{}); err != nil {
				return fmt.Errorf("look for MutatingAdmissionPolicy %s: %w", name, err)
			}
		}
		return nil
	})
	if apierrors.IsNotFound(err) {
		return "a MutatingAdmissionPolicy isn't installed, which this cluster serves: install the release again: " + err.Error(), nil
	}
	if err != nil {
		return "whether the MutatingAdmissionPolicies are installed can't be read: " + err.Error(), nil
	}
	return "", nil
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
	if f.unstamped != "" {
		log.Info("Clients must set spec.requestedBy: admission checks it and doesn't fill it in", "reason", f.unstamped)
	}
	if f.noImageVolumes != "" {
		log.Info("An init container brings the runner into each pod", "reason", f.noImageVolumes)
	}
	metrics.RegisterClusterFeatures(map[string]bool{
		"MutatingAdmissionPolicy": f.unstamped == "", "ImageVolume": f.noImageVolumes == "",
	})
}
