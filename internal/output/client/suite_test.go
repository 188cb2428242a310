package client_test

import (
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/testing/apitest"
)

// api is the aggregated API behind the API server; nil when there is none.
var api *apitest.API

var suite = apitest.Suite(&api, nil)

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

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
	namespace, admin := suite.Need(t).Namespace(t, "client-")
	return &space{t, admin, namespace}
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
	target, err := url.Parse(suite.Server().Config.Host)
	must(t, err)
	host := suite.Server().Config.Host
	if target.Host != "" {
		host = target.Host
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	c := &cutter{target: host, listener: listener, ended: make(chan struct{}), random: rand.New(rand.NewPCG(seed, 1))}
	c.running.Go(c.accept)
	t.Cleanup(func() { listener.Close(); close(c.ended); c.running.Wait() })
	through := rest.CopyConfig(suite.Server().Config)
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
