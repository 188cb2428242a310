package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	subresourcesv1alpha1 "toolcall.dev/operator/api/subresources/v1alpha1"
	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/version"
	"toolcall.dev/operator/internal/whoami"
)

// Cluster holds the clients, with the user's credentials, and the namespace that a command works in.
type Cluster struct {
	*CLI
	Namespace string
	Client    client.WithWatch
	// Asker reads with the rights of the person who runs the command, also with --as: what decides about somebody else's call, that
	// somebody need not be able to read.
	Asker client.Reader
	users authenticationv1client.SelfSubjectReviewInterface
	// Calls reads calls as the tables that the API server makes of them.
	Calls rest.Interface
	// HTTP sends requests whose answers' headers count.
	HTTP *http.Client
	// Output reads what calls write, and sends input and streams to sessions. Files carries files, on connections of its own.
	Output, Files *outputclient.Client
}

// Connected is what a command runs that works in a cluster.
func (c *CLI) Connected(run func(ctx context.Context, cluster *Cluster, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		cluster, err := c.Connect()
		if err != nil {
			return err
		}
		return run(command.Context(), cluster, args)
	}
}

// Connect reads the kubeconfig and creates the clients. It sends no request.
func (c *CLI) Connect() (*Cluster, error) {
	namespace, _, err := c.Flags.ToRawKubeConfigLoader().Namespace()
	config, configErr := c.Flags.ToRESTConfig()
	if err := cmp.Or(err, configErr); err != nil {
		return nil, fmt.Errorf("read the kubeconfig (set --kubeconfig, --context or KUBECONFIG): %w", err)
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	config.UserAgent = "kubectl-toolcall/" + version.String()
	config.WarningHandler = rest.NewWarningWriter(c.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	connected := &Cluster{CLI: c, Namespace: namespace}
	if err := connected.addClients(config); err != nil {
		return nil, fmt.Errorf("create the client: %w", err)
	}
	return connected, nil
}

// addClients creates the clients. They share connections.
func (c *Cluster) addClients(config *rest.Config) error {
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	c.HTTP = transport
	all := Scheme()
	objects, err := client.NewWithWatch(config, client.Options{HTTPClient: transport, Scheme: all, Mapper: mapper()})
	if err != nil {
		return err
	}
	users, err := authenticationv1client.NewForConfigAndClient(config, transport)
	if err != nil {
		return err
	}
	c.users = users.SelfSubjectReviews()
	c.Client, c.Asker = whoami.NewClient(objects, c.users), objects
	if config.Impersonate.UserName != "" {
		own := rest.CopyConfig(config)
		own.Impersonate = rest.ImpersonationConfig{}
		if c.Asker, err = client.New(own, client.Options{Scheme: all, Mapper: mapper()}); err != nil {
			return err
		}
	}
	if c.Output, err = outputclient.NewForHTTPClient(config, transport); err != nil {
		return err
	}
	// HTTP/1.1 carries a large file up in two thirds of the time of HTTP/2, whose frames are 16 KiB. A stream is refused at once
	// by HTTP/2 only.
	forFiles := rest.CopyConfig(config)
	forFiles.NextProtos = []string{"http/1.1"}
	if c.Files, err = outputclient.New(forFiles); err != nil {
		return err
	}
	c.Calls, err = apiutil.RESTClientForGVK(v1alpha1.GroupVersion.WithKind("ToolCall"), false, false, config, serializer.NewCodecFactory(all), transport)
	return err
}

// Scheme knows the kinds that commands use.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	Must(v1alpha1.AddToScheme(s))
	Must(subresourcesv1alpha1.AddToScheme(s))
	Must(appsv1.AddToScheme(s))
	Must(corev1.AddToScheme(s))
	// The tokens of accounts, and reviews of rights.
	Must(authenticationv1.AddToScheme(s))
	Must(authorizationv1.AddToScheme(s))
	Must(admissionregistrationv1.AddToScheme(s))
	// The tables and errors of the API server.
	Must(metav1.AddMetaToScheme(s))
	return s
})

// mapper knows the kinds, so that no command needs API discovery.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	add := func(version schema.GroupVersion, scope meta.RESTScope, kinds ...string) {
		for _, kind := range kinds {
			m.Add(version.WithKind(kind), scope)
		}
	}
	add(v1alpha1.GroupVersion, meta.RESTScopeNamespace, "ToolCall", "ToolCallApproval", "ExecutionEnvironment", "Skill", "ToolSession")
	add(v1alpha1.GroupVersion, meta.RESTScopeRoot, "ExecutionPolicy")
	add(subresourcesv1alpha1.GroupVersion, meta.RESTScopeNamespace, "ToolCallReview")
	add(corev1.SchemeGroupVersion, meta.RESTScopeNamespace, "Event", "ServiceAccount")
	add(rbacv1.SchemeGroupVersion, meta.RESTScopeNamespace, "Role", "RoleBinding")
	add(corev1.SchemeGroupVersion, meta.RESTScopeRoot, "Namespace", "Node")
	add(authorizationv1.SchemeGroupVersion, meta.RESTScopeRoot, "SelfSubjectAccessReview", "SelfSubjectRulesReview")
	// What an installation consists of.
	add(appsv1.SchemeGroupVersion, meta.RESTScopeNamespace, "Deployment", "StatefulSet")
	add(admissionregistrationv1.SchemeGroupVersion, meta.RESTScopeRoot,
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
	add(APIServiceKind.GroupVersion(), meta.RESTScopeRoot, APIServiceKind.Kind)
	return m
}

// Username is who the API server takes the user for.
func (c *Cluster) Username(ctx context.Context) (string, error) {
	review, err := c.users.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask the API server who you are: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

func (c *Cluster) Follow() follow.Clients { return follow.Clients{Calls: c.Client, Output: c.Output} }

// DryRun creates objects only for a look: the API server validates and admits them, and stores nothing.
func (c *Cluster) DryRun() follow.Clients {
	return follow.Clients{Calls: c.Client, CreateOptions: []client.CreateOption{client.DryRunAll}}
}

// Scope is the namespace that a command reads, empty for all of them, and the end of a sentence about that.
func (c *Cluster) Scope(all bool) (namespace, where string) {
	if all {
		return "", "."
	}
	return c.Namespace, fmt.Sprintf(" in namespace %s.", c.Namespace)
}

func (c *Cluster) Key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: name}
}

// GetCall reads one call.
func (c *Cluster) GetCall(ctx context.Context, name string) (*v1alpha1.ToolCall, error) {
	call := &v1alpha1.ToolCall{}
	if err := c.Client.Get(ctx, c.Key(name), call); err != nil {
		return nil, c.Explain("get", "toolcalls", "call "+name, err)
	}
	return call, nil
}

// roles grant what the ClusterRole toolcall-user doesn't.
var roles = map[string]string{
	"approve toolcalls": "toolcall-approver", "create toolcallapprovals": "toolcall-approver", "list toolcallapprovals": "toolcall-approver",
	"get toolcallapprovals":       "toolcall-approver",
	"patch executionenvironments": "toolcall-admin",
}

// Explain says what a failed request was about, and adds what the user can do: install the operator, look elsewhere, or ask for a role.
func (c *Cluster) Explain(verb, resource, what string, err error) error {
	kind, where := "ToolCall", `"kubectl toolcall get" lists the calls, "kubectl toolcall env list" the environments`
	if resource == "toolsessions" {
		kind, where = "ToolSession", `"kubectl toolcall session list" lists the sessions`
	}
	switch {
	case follow.NotInstalled(err):
		return fmt.Errorf("%s: this cluster has no %s kind: install the operator, or choose another cluster with --context: %w", what, kind, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s not found in namespace %q: %s, -n selects another namespace: %w", what, c.Namespace, where, err)
	case apierrors.IsForbidden(err):
		role, scope, how := cmp.Or(roles[verb+" "+resource], "toolcall-user"), "this namespace", ""
		if strings.Contains(err.Error(), "at the cluster scope") {
			scope, how = "all namespaces", ", bound with a ClusterRoleBinding"
		}
		return fmt.Errorf("%s %s: you need permission to %s %s in %s: the ClusterRole %s grants it%s: %w", verb, what, verb, resource, scope, role, how, err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// IsMissing reports whether an error says that an object isn't there, in a cluster that has its kind.
func IsMissing(err error) bool { return apierrors.IsNotFound(err) && !follow.NotInstalled(err) }

// GetSession reads one session.
func (c *Cluster) GetSession(ctx context.Context, name string) (*v1alpha1.ToolSession, error) {
	session := &v1alpha1.ToolSession{}
	if err := c.Client.Get(ctx, c.Key(name), session); err != nil {
		return nil, c.Explain("get", "toolsessions", "session "+name, err)
	}
	return session, nil
}

// OutputPatience is how long the output of a call may be away until logs without -f gives up.
const OutputPatience = 30 * time.Second

// APIServiceKind is the kind by which the aggregated API is registered.
var APIServiceKind = schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}
