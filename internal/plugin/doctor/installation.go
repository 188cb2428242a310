package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/plugin/cli"
)

// Names of what an installation has. The plugin knows them as a client does: it shares no code with the server.
const (
	outputGroup   = "subresources.toolcall.dev/v1alpha1"
	outputService = "v1alpha1.subresources.toolcall.dev"
	headerVersion = "Toolcall-Version"
	// systemNamespace is where the operator runs, unless the APIService leads elsewhere.
	systemNamespace = "toolcall-system"
	operatorLabel   = "toolcall-operator"
	storeLabel      = "toolcall-store"
	labelName       = "app.kubernetes.io/name"
)

// observed is what several checks look at, each part with why it can't be seen.
type observed struct {
	// version is that of Kubernetes.
	version    string
	versionErr error
	// service is the registration of the aggregated API.
	service    *unstructured.Unstructured
	serviceErr error
	// namespace is that of the operator: that of the Service which the aggregated API leads to, if that can be read.
	namespace string
	// operator is its Deployment; nil if there is none.
	operator    *appsv1.Deployment
	operatorErr error
	nodes       []corev1.Node
	nodesErr    error
}

// lookAt reads what several checks look at. It fails if the cluster doesn't answer at all.
func lookAt(ctx context.Context, c *cli.Cluster) (*observed, error) {
	in := &observed{}
	info := &apimachineryversion.Info{}
	in.versionErr = readJSON(ctx, c, "version", info)
	var status apierrors.APIStatus
	if in.versionErr != nil && !errors.As(in.versionErr, &status) {
		return nil, fmt.Errorf("the cluster can't be reached: check --context, --kubeconfig and the network: %w", in.versionErr)
	}
	in.version = info.GitVersion
	in.service = &unstructured.Unstructured{}
	in.service.SetGroupVersionKind(cli.APIServiceKind)
	in.serviceErr = c.Client.Get(ctx, client.ObjectKey{Name: outputService}, in.service)
	namespace, _, _ := unstructured.NestedString(in.service.Object, "spec", "service", "namespace")
	in.namespace = cmp.Or(namespace, systemNamespace)
	deployments := &appsv1.DeploymentList{}
	in.operatorErr = c.Client.List(ctx, deployments, client.InNamespace(in.namespace), client.MatchingLabels{labelName: operatorLabel})
	if len(deployments.Items) > 0 {
		in.operator = &deployments.Items[0]
	}
	nodes := &corev1.NodeList{}
	in.nodesErr = c.Client.List(ctx, nodes)
	in.nodes = nodes.Items
	return in, nil
}
