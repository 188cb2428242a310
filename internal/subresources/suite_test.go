package subresources_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/controllers/toolsession"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/subresources"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/internal/testing/apitest"
)

const (
	system   = apiservertest.OperatorNamespace
	service  = "toolcall-subresources"
	patience = 20 * time.Second
	// requestTimeout is how long a request to the API server may take that isn't long-running: a sixth of the default.
	requestTimeout = 10 * time.Second
)

// shared is the API server of all tests, with config/default in it and an aggregated API behind it; nil when there is none.
var shared *cluster

// cluster is an API server that passes the group on to a server of this process.
type cluster struct {
	*apiservertest.Server
	scheme   *runtime.Scheme
	admin    client.Client
	operator *rest.Config
	auditLog string
	identity *dispatch.Identity
	front    tls.Certificate
	streams  *apitest.Streams
	address  string
	hub      *dispatch.Hub
	records  recorded

	stop  context.CancelFunc
	ended chan error
}

var suite = newSuite()

func TestMain(m *testing.M) {
	if line := os.Getenv(asCommand); line != "" {
		if err := runCommand(line); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(suite.Run(m))
}

func newSuite() *apiservertest.Suite {
	c := &cluster{streams: apitest.NewStreams(), scheme: apiservertest.Scheme(), hub: dispatch.NewHub(func(*dispatch.Runner, dispatch.News) {})}
	return &apiservertest.Suite{
		Options: apiservertest.Options{Configure: c.configure},
		Setup: func(s *apiservertest.Server) error {
			c.Server, shared = s, c
			return c.setup()
		},
		Teardown: c.stopServing,
		Reads:    []string{"config"},
	}
}

// admissionDelay is how long after its creation an admission policy may not be in force yet, as package access has it.
const admissionDelay = 3 * time.Second

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules: [{level: Metadata, resources: [{group: subresources.toolcall.dev}]}, {level: None}]
`

// setup installs config/default, and serves the aggregated API.
func (c *cluster) setup() (err error) {
	if c.admin, err = c.Client(); err != nil {
		return err
	}
	c.operator = c.AsOperator()
	if c.identity, err = dispatch.NewIdentity(time.Now()); err != nil {
		return err
	}
	if said, err := c.Kubectl("", "apply", "--server-side", "-k", apiservertest.Path("config", "default")); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	installed := time.Now()
	if said, err := c.Kubectl("", "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	// Nobody vouches for who created what is as old as the admission policies, whose times are in seconds.
	time.Sleep(time.Until(installed.Add(admissionDelay + time.Second)))
	if err := c.serveShared("127.0.0.1:0"); err != nil {
		return err
	}
	return c.register()
}

// configure has the API server write a record of each request for the group, and cut requests early.
func (c *cluster) configure(env *envtest.Environment, dir string) error {
	var err error
	if c.front, err = apitest.Prepare(env, dir); err != nil {
		return err
	}
	policy := filepath.Join(dir, "audit.yaml")
	c.auditLog = filepath.Join(dir, "audit.log")
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
	if c.stop == nil {
		return nil
	}
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
		Identity: c.identity, Namespace: system, Service: service, Clients: clients, Live: reader, Cached: apitest.Indexed{Reader: reader},
		Requesters: &access.Requesters{Reader: reader}, Reviews: access.NewReviews(clients.AuthorizationV1().SubjectAccessReviews(), clock.RealClock{}),
		Policies: &apicache.Compiled{}, Runners: c.hub, Origins: &toolsession.Servings{Objects: apicache.Reader{Reader: reader, Live: reader}, Identity: c.identity},
		Record:  c.records.add,
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
	if said, err := c.Kubectl("", "patch", "apiservice", subresources.APIServiceName, "--type=merge", "--patch", patch); err != nil {
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
	said, err := c.Kubectl("", "wait", "--for=condition=Available", "apiservice/"+subresources.APIServiceName, "--timeout=60s")
	if err != nil {
		why, _ := c.Kubectl("", "get", "apiservice", subresources.APIServiceName, "--output=yaml")
		return fmt.Errorf("%w: %s: %s", err, said, why)
	}
	return nil
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
