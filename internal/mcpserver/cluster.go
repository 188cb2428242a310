package mcpserver

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spf13/pflag"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/whoami"
)

// userAgent names this program in the audit log of the API server.
const userAgent = "toolcall-mcp"

// Cluster holds the flags that select the API server and the namespace. They mean what they mean to kubectl.
type Cluster struct {
	Kubeconfig, Context, Namespace string
	// Server and CAFile select an API server without a kubeconfig.
	Server, CAFile string
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
}

// Load returns the connection, with the credentials of the kubeconfig if there is one, and the namespace.
func (c *Cluster) Load() (*rest.Config, string, error) {
	if c.CAFile != "" && c.Server == "" {
		return nil, "", errors.New("--certificate-authority can only be used with --server: a kubeconfig has its own")
	}
	if c.Server != "" {
		if c.Kubeconfig != "" || c.Context != "" {
			return nil, "", errors.New("--server replaces the kubeconfig: remove --kubeconfig and --context")
		}
		conf := &rest.Config{Host: c.Server, TLSClientConfig: rest.TLSClientConfig{CAFile: c.CAFile}}
		return conf, c.Namespace, checkNamespace(c.Namespace)
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
	return conf, namespace, checkNamespace(namespace)
}

func checkNamespace(name string) error {
	if name != "" && len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("namespace %q: must consist of at most 63 lower-case letters, digits and dashes", truncate(name, 80))
	}
	return nil
}

// clients send requests with the credentials of one connection.
type clients struct {
	objects client.WithWatch
	output  *outputclient.Client
}

// connect creates the clients. They know the kinds, so that no requester costs API discovery.
func connect(conf *rest.Config) (*clients, error) {
	conf = rest.CopyConfig(conf)
	conf.UserAgent = userAgent
	// The API server throttles its clients, and this server bounds the calls of each user.
	conf.QPS = -1
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("build the scheme: %w", err)
	}
	transport, err := rest.HTTPClientFor(conf)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	objects, err := client.NewWithWatch(conf, client.Options{Scheme: scheme, HTTPClient: transport, Mapper: mapper()})
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
	return &clients{objects: whoami.NewClient(objects, users.SelfSubjectReviews()), output: output}, nil
}

func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"ToolCall", "ToolSession", "ExecutionEnvironment"} {
		m.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	return m
}

// requester returns a Requester in one namespace. Its user isn't known yet.
func (c *clients) requester(namespace string) *Requester {
	both := follow.Clients{Calls: c.objects, Output: c.output}
	return &Requester{Calls: both, Sessions: both, Objects: c.objects, Output: c.output, Files: c.output, Namespace: namespace}
}

// LocalRequester is the user whose credentials the connection has.
func LocalRequester(conf *rest.Config, namespace string) (*Requester, error) {
	c, err := connect(conf)
	if err != nil {
		return nil, err
	}
	self, err := newSelf(conf)
	if err != nil {
		return nil, err
	}
	requester := c.requester(namespace)
	requester.User, requester.identify = "the user of the kubeconfig", self.identify
	return requester, nil
}
