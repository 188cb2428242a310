package client_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/api/v1alpha1"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/subresources/apitest"
)

// The API server of all tests, and the aggregated API behind it; nil when there is none.
var (
	config *rest.Config
	api    *apitest.API
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Fprintln(os.Stderr, "the tests that need an API server are skipped: set KUBEBUILDER_ASSETS, e.g. to the output of 'make -s envtest-assets'")
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "outputclient")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	env := &envtest.Environment{CRDDirectoryPaths: []string{"../../../config/crd"}, ErrorIfCRDPathMissing: true}
	defer func() { _ = env.Stop() }()
	if _, err = apitest.Prepare(env, dir); err == nil {
		if config, err = env.Start(); err == nil {
			config.QPS = -1
			api, err = apitest.Start(config)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the API server:", err)
		return 1
	}
	defer func() { _ = api.Stop() }()
	return m.Run()
}

// patience bounds every wait, so that a test that fails ends.
const patience = time.Minute

// space is a namespace of a test.
type space struct {
	t         *testing.T
	admin     client.Client
	namespace string
}

func newSpace(t *testing.T) *space {
	t.Helper()
	if api == nil {
		t.Skip("needs an API server: set KUBEBUILDER_ASSETS")
	}
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, v1alpha1.AddToScheme(scheme))
	admin, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "client-"}}
	must(t, admin.Create(t.Context(), namespace))
	return &space{t, admin, namespace.Name}
}

// call makes a call that runs.
func (s *space) call(name string) *v1alpha1.ToolCall {
	s.t.Helper()
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	call.Spec.Shell = &v1alpha1.ShellAction{Command: "true"}
	must(s.t, s.admin.Create(s.t.Context(), call))
	call.Status.Phase = v1alpha1.PhaseRunning
	must(s.t, s.admin.Status().Update(s.t.Context(), call))
	return call
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newClient(t *testing.T, conf *rest.Config) *outputclient.Client {
	t.Helper()
	transport, err := rest.HTTPClientFor(conf)
	must(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	c, err := outputclient.NewForHTTPClient(conf, transport)
	must(t, err)
	return c
}

// cutter passes connections on to the API server, and cuts each after a number of bytes.
type cutter struct {
	target   string
	listener net.Listener
	ended    chan struct{}
	running  sync.WaitGroup
	mu       sync.Mutex
	random   *rand.Rand
	cuts     int
}

// newCutter returns a connection to the API server that breaks again and again.
func newCutter(t *testing.T, seed uint64) (*cutter, *rest.Config) {
	t.Helper()
	target, err := url.Parse(config.Host)
	must(t, err)
	host := config.Host
	if target.Host != "" {
		host = target.Host
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	c := &cutter{target: host, listener: listener, ended: make(chan struct{}), random: rand.New(rand.NewPCG(seed, 1))}
	c.running.Go(c.accept)
	t.Cleanup(func() { listener.Close(); close(c.ended); c.running.Wait() })
	through := rest.CopyConfig(config)
	through.Host = "https://" + listener.Addr().String()
	return c, through
}

func (c *cutter) accept() {
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.running.Go(func() { c.serve(conn) })
	}
}

// minBytes is enough for the handshake and the first bytes of an answer.
const minBytes = 8 << 10

func (c *cutter) serve(conn net.Conn) {
	defer conn.Close()
	there, err := net.Dial("tcp", c.target)
	if err != nil {
		return
	}
	defer there.Close()
	c.mu.Lock()
	left := int64(minBytes + c.random.IntN(64<<10))
	c.mu.Unlock()
	c.running.Go(func() {
		_, _ = io.Copy(there, conn)
		there.Close()
	})
	served := make(chan struct{})
	defer close(served)
	c.running.Go(func() {
		// Connections that idle at the end of the test.
		select {
		case <-c.ended:
			there.Close()
		case <-served:
		}
	})
	if n, _ := io.CopyN(conn, there, left); n == left {
		c.mu.Lock()
		c.cuts++
		c.mu.Unlock()
	}
}

func (c *cutter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts
}
