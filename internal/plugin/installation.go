package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names of what an installation has. The plugin knows them as a client does: it shares no code with the server.
const (
	outputGroup   = "subresources.toolcall.dev/v1alpha1"
	versionHeader = "Toolcall-Version"
	// systemNamespace is where the operator runs, unless the APIService leads elsewhere.
	systemNamespace = "toolcall-system"
	operatorLabel   = "toolcall-operator"
	storeLabel      = "toolcall-store"
	labelName       = "app.kubernetes.io/name"
)

// operatorTag is the tag of the operator's image.
func (c *cluster) operatorTag(ctx context.Context) (string, error) {
	deployment, err := c.operatorDeployment(ctx)
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
func (c *cluster) operatorDeployment(ctx context.Context) (*appsv1.Deployment, error) {
	list := &appsv1.DeploymentList{}
	namespace := c.installedIn(ctx)
	if err := c.client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{labelName: operatorLabel}); err != nil {
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

// apiServiceKind is the kind by which the aggregated API is registered.
var apiServiceKind = schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}

// apiService reads the registration of the aggregated API.
func (c *cluster) apiService(ctx context.Context) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(apiServiceKind)
	version, group := "v1alpha1", "subresources.toolcall.dev"
	if err := c.client.Get(ctx, client.ObjectKey{Name: version + "." + group}, object); err != nil {
		return nil, err
	}
	return object, nil
}

// installedIn is the namespace of the operator: that of the Service which the aggregated API leads to, if that can be read.
func (c *cluster) installedIn(ctx context.Context) string {
	service, err := c.apiService(ctx)
	if err != nil {
		return systemNamespace
	}
	namespace, _, _ := unstructured.NestedString(service.Object, "spec", "service", "namespace")
	return orText(namespace, systemNamespace)
}
