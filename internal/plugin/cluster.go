package plugin

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/version"
)

// cluster holds the clients, with the user's credentials, and the namespace that a command works in.
type cluster struct {
	namespace string
	client    client.WithWatch
	core      *corev1client.CoreV1Client
	reviews   *authorizationv1client.AuthorizationV1Client
	// output reads what calls write, and sends files and input to sessions.
	output *outputclient.Client
}

// connect reads the kubeconfig and creates the clients. It sends no request.
func (c *cli) connect() (*cluster, error) {
	namespace, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig (set --kubeconfig, --context or KUBECONFIG): %w", err)
	}
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig (set --kubeconfig, --context or KUBECONFIG): %w", err)
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	config.UserAgent = "kubectl-toolcall/" + version.String()
	config.WarningHandler = rest.NewWarningWriter(c.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	connected := &cluster{namespace: namespace}
	if connected.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme(), Mapper: mapper()}); err != nil {
		return nil, fmt.Errorf("create the client: %w", err)
	}
	if connected.core, err = corev1client.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create the client: %w", err)
	}
	if connected.reviews, err = authorizationv1client.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create the client: %w", err)
	}
	if connected.output, err = outputclient.New(config); err != nil {
		return nil, fmt.Errorf("create the client: %w", err)
	}
	return connected, nil
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	must(v1alpha1.AddToScheme(s))
	return s
}

// mapper knows the kinds, so that no command needs API discovery.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for kind, scope := range map[string]meta.RESTScope{
		"ToolCall": meta.RESTScopeNamespace, "ExecutionEnvironment": meta.RESTScopeNamespace,
		"Skill": meta.RESTScopeNamespace, "ToolSession": meta.RESTScopeNamespace, "ExecutionPolicy": meta.RESTScopeRoot,
	} {
		m.Add(v1alpha1.GroupVersion.WithKind(kind), scope)
	}
	return m
}

func (c *cluster) follow() follow.Clients { return follow.Clients{Calls: c.client, Output: c.output} }

func (c *cluster) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: c.namespace, Name: name}
}

// getCall reads one call.
func (c *cluster) getCall(ctx context.Context, name string) (*v1alpha1.ToolCall, error) {
	call := &v1alpha1.ToolCall{}
	if err := c.client.Get(ctx, c.key(name), call); err != nil {
		return nil, c.readError("call "+name, err)
	}
	call.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolCall"))
	return call, nil
}

// readError adds what the user can do to the error of a request for an existing object.
func (c *cluster) readError(what string, err error) error {
	if follow.NotInstalled(err) {
		return fmt.Errorf("%s: this cluster has no ToolCall kind: install the operator, or choose another cluster with --context: %w", what, err)
	}
	if apierrors.IsNotFound(err) {
		return c.notFoundError(what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// notFoundError adds where to look to an error that says that an object doesn't exist.
func (c *cluster) notFoundError(what string, err error) error {
	if apierrors.IsNotFound(err) && !follow.NotInstalled(err) {
		return fmt.Errorf("%s not found in namespace %q: \"kubectl toolcall get\" lists the calls, \"kubectl toolcall env list\" the environments, -n selects another namespace: %w", what, c.namespace, err)
	}
	return err
}

// names lists the names of objects in the namespace.
func (c *cluster) names(ctx context.Context, list client.ObjectList) ([]string, error) {
	if err := c.client.List(ctx, list, client.InNamespace(c.namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	var names []string
	err := meta.EachListItem(list, func(o runtime.Object) error {
		names = append(names, o.(client.Object).GetName())
		return nil
	})
	return names, err
}
