package identity

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/follow"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/whoami"
)

// UserAgent names this program in the audit log of the API server.
const UserAgent = "toolcall-mcp"

// Cluster holds the flags that select the API server and the namespace. They mean what they mean to kubectl.
type Cluster struct {
	Kubeconfig, Context, Namespace string
	// Server, CAFile and TokenFile select an API server without a kubeconfig.
	Server, CAFile, TokenFile string
}

// Bind defines the flags of both transports.
func (c *Cluster) Bind(fs *pflag.FlagSet) {
	fs.StringVar(&c.Kubeconfig, "kubeconfig", "", "path of the kubeconfig (default: $KUBECONFIG, then ~/.kube/config)")
	fs.StringVar(&c.Context, "context", "", "context of the kubeconfig")
	fs.StringVarP(&c.Namespace, "namespace", "n", "", "namespace of the calls (default: the namespace of the context)")
}

// BindServer defines the flags that select an API server without a kubeconfig.
func (c *Cluster) BindServer(fs *pflag.FlagSet) {
	fs.StringVar(&c.Server, "server", "", "URL of the API server; replaces the kubeconfig")
	fs.StringVar(&c.CAFile, "certificate-authority", "", "file with the CA certificate of --server")
	fs.StringVar(&c.TokenFile, "token-file", "", "file with the token of the server's own account at --server; it is read again when it changes")
}

// Load returns the connection, with the credentials of the kubeconfig if there is one, and the namespace.
func (c *Cluster) Load() (*rest.Config, string, error) {
	if (c.CAFile != "" || c.TokenFile != "") && c.Server == "" {
		return nil, "", errors.New("--certificate-authority and --token-file can only be used with --server: a kubeconfig has its own")
	}
	if c.Server != "" {
		if c.Kubeconfig != "" || c.Context != "" {
			return nil, "", errors.New("--server replaces the kubeconfig: remove --kubeconfig and --context")
		}
		conf := &rest.Config{Host: c.Server, BearerTokenFile: c.TokenFile, TLSClientConfig: rest.TLSClientConfig{CAFile: c.CAFile}}
		return conf, c.Namespace, CheckNamespace(c.Namespace)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: c.Context}
	overrides.Context.Namespace = c.Namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	conf, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("read the namespace from the kubeconfig: %w", err)
	}
	return conf, namespace, CheckNamespace(namespace)
}

// CheckNamespace returns an error unless a name can be that of a namespace. Empty is fine.
func CheckNamespace(name string) error {
	if name != "" && len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("namespace %q: must consist of at most 63 lower-case letters, digits and dashes", bounds.Text(name, 80))
	}
	return nil
}

// scheme and mapper have the kinds that clients know: no requester costs API discovery, and many tokens cost no memory for them.
var (
	scheme = runtime.NewScheme()
	mapper = meta.NewDefaultRESTMapper(nil)
)

func init() {
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	for _, kind := range []string{"ToolCall", "ToolSession", "ToolCallApproval", "ExecutionEnvironment"} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(v1alpha1.GroupVersion.WithKind("ExecutionPolicy"), meta.RESTScopeRoot)
}

// connect returns a Requester whose requests have the credentials of a connection.
func connect(conf *rest.Config) (*Requester, error) {
	conf = named(conf)
	transport, err := rest.HTTPClientFor(conf)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	objects, err := client.NewWithWatch(conf, client.Options{Scheme: scheme, HTTPClient: transport, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("create the client: %w", err)
	}
	users, err := authenticationv1client.NewForConfigAndClient(conf, transport)
	if err != nil {
		return nil, fmt.Errorf("create the client for reviews: %w", err)
	}
	output, err := outputclient.NewForHTTPClient(conf, transport)
	if err != nil {
		return nil, fmt.Errorf("create the client for output: %w", err)
	}
	stamping := whoami.NewClient(objects, users.SelfSubjectReviews())
	return &Requester{
		Calls: follow.Clients{Calls: stamping, Output: output}, Objects: stamping, Output: output,
		self: &self{reviews: users.SelfSubjectReviews()},
	}, nil
}

// Local returns the user whose credentials the connection has.
func Local(conf *rest.Config, namespace string) (*Requester, error) {
	r, err := connect(conf)
	if err != nil {
		return nil, err
	}
	r.Namespace, r.User = namespace, "the user of the kubeconfig"
	return r, nil
}

// newRequester returns the user for whom the connection acts, as the API server sees it, without a namespace. Its account's UID is the same for
// all of its tokens, also where the API server doesn't see it.
func newRequester(conf *rest.Config, user *authenticationv1.UserInfo, accountUID string) (*Requester, error) {
	r, err := connect(conf)
	if err != nil {
		return nil, err
	}
	r.User, r.Tenant, r.accountUID = user.Username, tenantOf(user.Username), accountUID
	r.self = &self{username: user.Username, uid: user.UID}
	return r, nil
}

// In returns the same user in a namespace.
func (r *Requester) In(namespace string) *Requester {
	in := *r
	in.Namespace = namespace
	return &in
}

// Key is the same for all tokens of one user, and differs between namespaces.
func (r *Requester) Key() string {
	return strings.Join([]string{r.User, r.accountUID, r.Namespace}, "\x00")
}

// tenantOf returns the tenant that a user belongs to. Whoever may create one ServiceAccount in a namespace can create
// many, so all of them count as one tenant.
func tenantOf(username string) string {
	if namespace, _, err := serviceaccount.SplitUsername(username); err == nil {
		return serviceaccount.MakeNamespaceGroupName(namespace)
	}
	return username
}
