package mcpserver

import (
	"errors"
	"fmt"

	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spf13/pflag"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
)

// userAgent is how the API server's audit log names this program.
const userAgent = "toolcall-mcp"

// Cluster says where the API server is, as kubectl's flags of the same names do.
type Cluster struct {
	Kubeconfig, Context, Namespace string
	// Server and CAFile name an API server without a kubeconfig.
	Server, CAFile string
}

// Bind defines the flags that both transports have.
func (c *Cluster) Bind(fs *pflag.FlagSet) {
	fs.StringVar(&c.Kubeconfig, "kubeconfig", "", "path of the kubeconfig; KUBECONFIG, then ~/.kube/config when empty")
	fs.StringVar(&c.Context, "context", "", "context of the kubeconfig to use")
	fs.StringVarP(&c.Namespace, "namespace", "n", "", "namespace of the calls; the context's when empty")
}

// BindServer defines the flags that name an API server without a kubeconfig.
func (c *Cluster) BindServer(fs *pflag.FlagSet) {
	fs.StringVar(&c.Server, "server", "", "URL of the API server, instead of a kubeconfig")
	fs.StringVar(&c.CAFile, "certificate-authority", "", "file with the certificate authority of --server")
}

// Load gives the connection, with the credentials of the kubeconfig if there is one, and the namespace.
func (c *Cluster) Load() (*rest.Config, string, error) {
	if c.CAFile != "" && c.Server == "" {
		return nil, "", errors.New("--certificate-authority goes with --server: a kubeconfig has its own")
	}
	if c.Server != "" {
		if c.Kubeconfig != "" || c.Context != "" {
			return nil, "", errors.New("--server is used instead of a kubeconfig: leave out --kubeconfig and --context")
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
		return nil, "", fmt.Errorf("find the cluster: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("find the namespace: %w", err)
	}
	return conf, namespace, checkNamespace(namespace)
}

func checkNamespace(name string) error {
	if name != "" && len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("namespace %q: it must be lower-case letters, digits and dashes, at most 63 of them", shorten(name, 80))
	}
	return nil
}

// clients act with the credentials of one connection.
type clients struct {
	objects client.WithWatch
	pods    corev1client.CoreV1Interface
	whoami  authenticationv1client.SelfSubjectReviewInterface
}

// connect makes the clients. The kinds are known beforehand, so that no caller costs a discovery.
func connect(conf *rest.Config) (*clients, error) {
	conf = rest.CopyConfig(conf)
	conf.UserAgent = userAgent
	// The API server holds its callers to limits; each one's calls are bounded here.
	conf.QPS = -1
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("build the scheme: %w", err)
	}
	over, err := rest.HTTPClientFor(conf)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	objects, err := client.NewWithWatch(conf, client.Options{Scheme: scheme, HTTPClient: over, Mapper: mapper()})
	if err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	pods, err := corev1client.NewForConfigAndClient(conf, over)
	if err != nil {
		return nil, fmt.Errorf("make the client for pods: %w", err)
	}
	reviews, err := authenticationv1client.NewForConfigAndClient(conf, over)
	if err != nil {
		return nil, fmt.Errorf("make the client for identities: %w", err)
	}
	return &clients{objects: objects, pods: pods, whoami: reviews.SelfSubjectReviews()}, nil
}

func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"ToolCall", "ExecutionEnvironment"} {
		m.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	return m
}

// caller acts in one namespace.
func (c *clients) caller(namespace, user string) *Caller {
	return &Caller{
		Calls: follow.Clients{Calls: c.objects, Pods: c.pods}, Environments: c.objects, Namespace: namespace, User: user,
	}
}

// LocalCaller is the user of a connection's own credentials.
func LocalCaller(conf *rest.Config, namespace string) (*Caller, error) {
	c, err := connect(conf)
	if err != nil {
		return nil, err
	}
	return c.caller(namespace, "the kubeconfig's user"), nil
}
