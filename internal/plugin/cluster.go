package plugin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/version"
	"toolcall.dev/operator/internal/whoami"
)

// cluster holds the clients, with the user's credentials, and the namespace that a command works in.
type cluster struct {
	namespace string
	client    client.WithWatch
	// asker reads with the rights of the person who runs the command, also with --as: what decides about somebody else's call, that
	// somebody need not be able to read.
	asker   client.Reader
	core    *corev1client.CoreV1Client
	reviews *authorizationv1client.AuthorizationV1Client
	// calls reads calls as the tables that the API server makes of them.
	calls      rest.Interface
	parameters runtime.ParameterCodec
	// http sends requests whose answers' headers count, to paths below base.
	http *http.Client
	base *url.URL
	// output reads what calls write, and sends input and streams to sessions. files carries files, on connections of its own.
	output, files *outputclient.Client
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
	if err := connected.addClients(config); err != nil {
		return nil, fmt.Errorf("create the client: %w", err)
	}
	return connected, nil
}

// addClients creates the clients. They share connections.
func (c *cluster) addClients(config *rest.Config) error {
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	c.http = transport
	if c.base, _, err = rest.DefaultServerUrlFor(config); err != nil {
		return err
	}
	all := scheme()
	objects, err := client.NewWithWatch(config, client.Options{HTTPClient: transport, Scheme: all, Mapper: mapper()})
	if err != nil {
		return err
	}
	users, err := authenticationv1client.NewForConfigAndClient(config, transport)
	if err != nil {
		return err
	}
	c.client, c.asker = whoami.NewClient(objects, users.SelfSubjectReviews()), objects
	if config.Impersonate.UserName != "" {
		own := rest.CopyConfig(config)
		own.Impersonate = rest.ImpersonationConfig{}
		if c.asker, err = client.New(own, client.Options{Scheme: all, Mapper: mapper()}); err != nil {
			return err
		}
	}
	if c.core, err = corev1client.NewForConfigAndClient(config, transport); err != nil {
		return err
	}
	if c.reviews, err = authorizationv1client.NewForConfigAndClient(config, transport); err != nil {
		return err
	}
	if c.output, err = outputclient.NewForHTTPClient(config, transport); err != nil {
		return err
	}
	// HTTP/1.1 carries a large file up in two thirds of the time of HTTP/2, whose frames are 16 KiB. A stream is refused at once
	// by HTTP/2 only.
	forFiles := rest.CopyConfig(config)
	forFiles.NextProtos = []string{"http/1.1"}
	if c.files, err = outputclient.New(forFiles); err != nil {
		return err
	}
	c.parameters = runtime.NewParameterCodec(all)
	ofCalls := rest.CopyConfig(config)
	ofCalls.GroupVersion, ofCalls.APIPath = &v1alpha1.GroupVersion, "/apis"
	ofCalls.NegotiatedSerializer = serializer.NewCodecFactory(all).WithoutConversion()
	c.calls, err = rest.RESTClientForConfigAndClient(ofCalls, transport)
	return err
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	must(v1alpha1.AddToScheme(s))
	must(appsv1.AddToScheme(s))
	must(corev1.AddToScheme(s))
	must(admissionregistrationv1.AddToScheme(s))
	// The tables and errors of the API server.
	must(metav1.AddMetaToScheme(s))
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
	// What an installation consists of.
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		m.Add(appsv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	for _, kind := range []string{
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	} {
		m.Add(admissionregistrationv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	m.Add(corev1.SchemeGroupVersion.WithKind("Event"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(apiServiceKind, meta.RESTScopeRoot)
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
