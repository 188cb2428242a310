package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/plugin/cli"
)

// Names of what an installation has. The plugin knows them as a client does: it shares no code with the server.
const (
	outputGroup   = "subresources.toolcall.dev/v1alpha1"
	headerVersion = "Toolcall-Version"
	// systemNamespace is where the operator runs, unless the APIService leads elsewhere.
	systemNamespace = "toolcall-system"
	operatorLabel   = "toolcall-operator"
	storeLabel      = "toolcall-store"
	labelName       = "app.kubernetes.io/name"
)

// operatorTag is the tag of the operator's image.
func operatorTag(ctx context.Context, c *cli.Cluster) (string, error) {
	deployment, err := operatorDeployment(ctx, c)
	if err != nil {
		return "", err
	}
	for i := range deployment.Spec.Template.Spec.Containers {
		if tag := imageTag(deployment.Spec.Template.Spec.Containers[i].Image); tag != "" {
			return tag, nil
		}
	}
	return "", fmt.Errorf("the image of Deployment %s has no tag", deployment.Name)
}

// imageTag is the tag of an image, empty if it has none.
func imageTag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, _ := strings.Cut(name, ":")
	return tag
}

// operatorDeployment reads the Deployment of the operator.
func operatorDeployment(ctx context.Context, c *cli.Cluster) (*appsv1.Deployment, error) {
	list := &appsv1.DeploymentList{}
	namespace := installedIn(ctx, c)
	if err := c.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{labelName: operatorLabel}); err != nil {
		if apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("you have no permission to list deployments in namespace %s: %w", namespace, err)
		}
		return nil, fmt.Errorf("list deployments in namespace %s: %w", namespace, err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("%w: namespace %s has no Deployment with the label %s=%s", errNoOperator, namespace, labelName, operatorLabel)
	}
	return &list.Items[0], nil
}

// errNoOperator says that the cluster has no operator, or not where it is looked for.
var errNoOperator = errors.New("no operator was found")

// apiService reads the registration of the aggregated API.
func apiService(ctx context.Context, c *cli.Cluster) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(cli.APIServiceKind)
	version, group := "v1alpha1", "subresources.toolcall.dev"
	if err := c.Client.Get(ctx, client.ObjectKey{Name: version + "." + group}, object); err != nil {
		return nil, err
	}
	return object, nil
}

// installedIn is the namespace of the operator: that of the Service which the aggregated API leads to, if that can be read.
func installedIn(ctx context.Context, c *cli.Cluster) string {
	service, err := apiService(ctx, c)
	if err != nil {
		return systemNamespace
	}
	namespace, _, _ := unstructured.NestedString(service.Object, "spec", "service", "namespace")
	return cmp.Or(namespace, systemNamespace)
}
