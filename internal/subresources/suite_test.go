package subresources_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/toolsession"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/subresources"
	"toolcall.dev/operator/internal/subresources/apitest"
)

const (
	root     = "../.."
	system   = "toolcall-system"
	account  = "system:serviceaccount:" + system + ":toolcall-operator"
	service  = "toolcall-subresources"
	patience = 20 * time.Second
	// requestTimeout is how long a request to the API server may take that isn't long-running: a sixth of the default.
	requestTimeout = 10 * time.Second
)

// shared is the API server of all tests, with config/default in it and an aggregated API behind it; nil when there is none.
var shared *cluster

// cluster is an API server that passes the group on to a server of this process.
type cluster struct {
	config     *rest.Config
	scheme     *runtime.Scheme
	admin      client.Client
	operator   *rest.Config
	kubeconfig string
	auditLog   string
	identity   *dispatch.Identity
	front      tls.Certificate
	streams    *apitest.Streams
	address    string
	hub        *dispatch.Hub

	stop  context.CancelFunc
	ended chan error
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Fprintln(os.Stderr, "the tests that need an API server are skipped: set KUBEBUILDER_ASSETS, e.g. to the output of 'make -s envtest-assets'")
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "subresources")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	env := &envtest.Environment{}
	defer func() { _ = env.Stop() }()
	if shared, err = startCluster(env, dir); err != nil {
		fmt.Fprintln(os.Stderr, "start the API server, install config/default and serve the aggregated API:", err)
		return 1
	}
	defer func() { _ = shared.stopServing() }()
	return m.Run()
}

// admissionDelay is how long after its creation an admission policy may not be in force yet, as package access has it.
const admissionDelay = 3 * time.Second

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules: [{level: Metadata, resources: [{group: subresources.toolcall.dev}]}, {level: None}]
`

func startCluster(env *envtest.Environment, dir string) (*cluster, error) {
	c := &cluster{kubeconfig: filepath.Join(dir, "kubeconfig"), auditLog: filepath.Join(dir, "audit.log"), streams: apitest.NewStreams(), scheme: runtime.NewScheme()}
	c.hub = dispatch.NewHub(func(*dispatch.Session) {})
	if err := errors.Join(clientgoscheme.AddToScheme(c.scheme), v1alpha1.AddToScheme(c.scheme)); err != nil {
		return nil, err
	}
	var err error
	if c.front, err = apitest.Prepare(env, dir); err != nil {
		return nil, err
	}
	if err := c.configure(env, dir); err != nil {
		return nil, err
	}
	if c.config, err = env.Start(); err != nil {
		return nil, err
	}
	c.config.QPS, c.config.Burst = 500, 1000
	if err := os.WriteFile(c.kubeconfig, env.KubeConfig, 0o600); err != nil {
		return nil, err
	}
	if c.admin, err = client.New(c.config, client.Options{Scheme: c.scheme}); err != nil {
		return nil, err
	}
	c.operator = rest.CopyConfig(c.config)
	c.operator.Impersonate = rest.ImpersonationConfig{
		UserName: account, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + system, "system:authenticated"},
	}
	if c.identity, err = dispatch.NewIdentity(time.Now()); err != nil {
		return nil, err
	}
	if said, err := c.kubectl("apply", "--server-side", "-k", filepath.Join(root, "config", "default")); err != nil {
		return nil, fmt.Errorf("%w: %s", err, said)
	}
	installed := time.Now()
	if said, err := c.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"); err != nil {
		return nil, fmt.Errorf("%w: %s", err, said)
	}
	// Nobody vouches for who created what is as old as the admission policies, whose times are in seconds.
	time.Sleep(time.Until(installed.Add(admissionDelay + time.Second)))
	if err := c.serveShared("127.0.0.1:0"); err != nil {
		return nil, err
	}
	return c, c.register()
}

// configure has the API server write a record of each request for the group, and cut requests early.
func (c *cluster) configure(env *envtest.Environment, dir string) error {
	policy := filepath.Join(dir, "audit.yaml")
	args := env.ControlPlane.GetAPIServer().Configure()
	args.Append("audit-policy-file", policy)
	args.Append("audit-log-path", c.auditLog)
	args.Append("audit-log-mode", "blocking")
	args.Append("request-timeout", requestTimeout.String())
	return os.WriteFile(policy, []byte(auditPolicy), 0o600)
}

// serveShared starts the server that the APIService leads to.
func (c *cluster) serveShared(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	c.address = listener.Addr().String()
	server, err := c.newServer([]output.Source{c.streams}, nil)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.ended = stop, make(chan error, 1)
	go func() { c.ended <- server.Run(ctx, listener) }()
	return nil
}

func (c *cluster) stopServing() error {
	c.stop()
	return <-c.ended
}

// newServer is a server with the rights of the operator's account.
func (c *cluster) newServer(sources []output.Source, leader subresources.Leader, stored ...output.Source) (*subresources.Server, error) {
	options, err := c.serverOptions(sources, leader, stored...)
	if err != nil {
		return nil, err
	}
	return subresources.New(*options)
}

func (c *cluster) serverOptions(sources []output.Source, leader subresources.Leader, stored ...output.Source) (*subresources.Options, error) {
	clients, err := kubernetes.NewForConfig(c.operator)
	if err != nil {
		return nil, err
	}
	reader, err := client.New(c.operator, client.Options{Scheme: c.scheme})
	if err != nil {
		return nil, err
	}
	return &subresources.Options{
		Identity: c.identity, Namespace: system, Service: service, Clients: clients, Live: reader, Cached: reader,
		Requesters: &access.Requesters{Reader: reader}, Reviews: access.NewReviews(clients.AuthorizationV1().SubjectAccessReviews(), clock.RealClock{}),
		Runners: c.hub, Origins: &toolsession.Servings{Objects: apicache.Reader{Reader: reader, Live: reader}, Identity: c.identity},
		Sources: sources, Stored: stored, Leader: leader, Clock: clock.RealClock{}, Log: logr.Discard(),
	}, nil
}

// register has the APIService lead to the server of this process: the Service is of a type that the API server follows to a
// loopback address, with the port that the APIService names. The operator writes its authority, with its own rights.
func (c *cluster) register() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, port, err := net.SplitHostPort(c.address)
	if err != nil {
		return err
	}
	there := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: service}}
	external := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: service},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	if err := errors.Join(c.admin.Delete(ctx, there), c.admin.Create(ctx, external)); err != nil {
		return err
	}
	patch := `{"spec":{"service":{"port":` + port + `}}}`
	if said, err := c.kubectl("patch", "apiservice", subresources.APIServiceName, "--type=merge", "--patch", patch); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	writer, err := client.New(c.operator, client.Options{Scheme: c.scheme})
	if err != nil {
		return err
	}
	registration := &subresources.Registration{Client: writer, Identity: c.identity, Namespace: system, Service: service, Log: logr.Discard()}
	registering, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = registration.Start(registering) })
	defer wg.Wait()
	defer stop()
	said, err := c.kubectl("wait", "--for=condition=Available", "apiservice/"+subresources.APIServiceName, "--timeout=60s")
	if err != nil {
		why, _ := c.kubectl("get", "apiservice", subresources.APIServiceName, "--output=yaml")
		return fmt.Errorf("%w: %s: %s", err, said, why)
	}
	return nil
}

// kubectl runs the API server's own kubectl as the administrator, and gives all that it printed.
func (c *cluster) kubectl(args ...string) (string, error) {
	command := exec.Command(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
	out, err := command.CombinedOutput()
	return string(bytes.TrimSpace(out)), err
}

// eventually tries until there is no error.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func sum(data []byte) string {
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:])
}
