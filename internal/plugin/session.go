package plugin

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/version"
)

// session is what every command starts from.
type session struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags
}

// cluster is a connection as the caller.
type cluster struct {
	namespace string
	client    client.WithWatch
	core      *corev1client.CoreV1Client
	reviews   *authorizationv1client.AuthorizationV1Client
}

// connect reads the kubeconfig and makes the clients; nothing is asked of the API server yet.
func (s *session) connect() (*cluster, error) {
	namespace, _, err := s.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig (set --kubeconfig, --context or KUBECONFIG): %w", err)
	}
	config, err := s.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig (set --kubeconfig, --context or KUBECONFIG): %w", err)
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	config.UserAgent = "kubectl-toolcall/" + version.String()
	config.WarningHandler = rest.NewWarningWriter(s.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	c := &cluster{namespace: namespace}
	if c.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme(), Mapper: mapper()}); err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	if c.core, err = corev1client.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	if c.reviews, err = authorizationv1client.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	return c, nil
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	must(v1alpha1.AddToScheme(s))
	return s
}

// mapper knows the kinds without asking the API server for all that it has.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for kind, scope := range map[string]meta.RESTScope{
		"ToolCall": meta.RESTScopeNamespace, "ExecutionEnvironment": meta.RESTScopeNamespace,
		"Skill": meta.RESTScopeNamespace, "ExecutionPolicy": meta.RESTScopeRoot,
	} {
		m.Add(v1alpha1.GroupVersion.WithKind(kind), scope)
	}
	return m
}

func (c *cluster) follow() follow.Clients { return follow.Clients{Calls: c.client, Pods: c.core} }

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

// readError says what to do about something that couldn't be read.
func (c *cluster) readError(what string, err error) error {
	if follow.NotInstalled(err) {
		return fmt.Errorf("get %s: this cluster doesn't know ToolCalls: install the operator there, or choose another cluster with --context: %w", what, err)
	}
	return c.missing(what, fmt.Errorf("get %s: %w", what, err))
}

// missing adds, to an error that says that something isn't there, where to look for it.
func (c *cluster) missing(what string, err error) error {
	if apierrors.IsNotFound(err) && !follow.NotInstalled(err) {
		return fmt.Errorf("there is no %s in namespace %q: \"kubectl toolcall get\" lists the calls, \"kubectl toolcall env list\" the environments, -n chooses another namespace: %w", what, c.namespace, err)
	}
	return err
}

// names lists the objects of a list.
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
