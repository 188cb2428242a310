package namespaces

import (
	"context"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/util/wait"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/internal/operator"
	"toolcall.dev/operator/internal/testing/address"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/internal/whoami"
	"toolcall.dev/operator/test/internal/overlay"
)

const (
	root      = "../.."
	system    = apiservertest.OperatorNamespace
	elsewhere = "elsewhere"
	patience  = 2 * time.Minute
)

var covered = []string{"covered-a", "covered-b"}

// bench is an API server with the operator installed for the covered namespaces.
type bench struct {
	t      *testing.T
	server *apiservertest.Server
	admin  client.Client
	// operator acts with the rights of the operator's account.
	operator client.Client
	overlay  string
	kubectl  func(args ...string)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, overlay: t.TempDir(), server: apiservertest.New(t, apiservertest.Options{})}
	apiservertest.Reads(t, "config")
	b.kubectl = func(args ...string) {
		t.Helper()
		if said, err := b.server.Kubectl("", args...); err != nil && !lacksStampAlone(said) {
			t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, said)
		}
	}
	users, err := authenticationv1client.NewForConfig(b.server.Config)
	b.must(err)
	b.admin = whoami.NewClient(b.server.Admin(t), users.SelfSubjectReviews())
	b.operator, err = client.New(b.server.AsOperator(), client.Options{Scheme: apiservertest.Scheme()})
	b.must(err)
	for _, namespace := range append(slices.Clone(covered), elsewhere) {
		b.kubectl("create", "namespace", namespace)
	}
	folder, err := filepath.Abs(root)
	b.must(err)
	b.must(overlay.Namespaced(folder, b.overlay, covered...))
	b.kubectl("apply", "--server-side", "-k", b.overlay)
	b.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	return b
}

// lacksStampAlone says that kubectl failed for nothing but the MutatingAdmissionPolicies that clusters before 1.36 don't know.
func lacksStampAlone(said string) bool {
	const unknown = "no matches for kind \"MutatingAdmissionPolicy"
	for line := range strings.Lines(said) {
		fails := strings.HasPrefix(line, "error") || strings.HasPrefix(line, "Error") || strings.Contains(line, "not found")
		if fails && !strings.Contains(line, unknown) {
			return false
		}
	}
	return strings.Contains(said, unknown)
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) eventually(what string, is func(context.Context) (bool, error)) {
	b.t.Helper()
	if err := wait.PollUntilContextTimeout(b.t.Context(), 50*time.Millisecond, patience, true, is); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// traffic is what the operator asked the API server for.
type traffic struct {
	mu      sync.Mutex
	refused []string
	// asked has METHOD path.
	asked map[string]bool
}

// wrap records what passes.
func (r *traffic) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		r.mu.Lock()
		defer r.mu.Unlock()
		said := request.Method + " " + request.URL.Path
		r.asked[said] = true
		if err == nil && response.StatusCode == http.StatusForbidden {
			r.refused = append(r.refused, said)
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// running is the operator, in this process.
type running struct {
	traffic traffic
	// logs has every line of its log.
	logs func() string
	// ended has what it ended with.
	ended chan error
}

// start runs the operator as its account, with the arguments of the installation.
func (b *bench) start() *running {
	b.t.Helper()
	dispatchAddress, outputAddress := address.Free(b.t), address.Free(b.t)
	var mu sync.Mutex
	var lines strings.Builder
	log := funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines.WriteString(prefix + " " + args + "\n")
	}, funcr.Options{})
	r := &running{traffic: traffic{asked: map[string]bool{}}, ended: make(chan error, 1), logs: func() string {
		mu.Lock()
		defer mu.Unlock()
		return lines.String()
	}}
	conf := b.server.AsOperator()
	conf.Wrap(r.traffic.wrap)
	options := &operator.Options{
		RunnerImage: "example.com/runner:1", RunnerDelivery: operator.DeliverAuto, DispatchAddress: dispatchAddress,
		IdentityDir: b.t.TempDir(), MetricsAddress: "0", HealthAddress: "0",
		LeaderElect: true, ConcurrentCalls: 16, QPS: 1000, Namespaces: covered, Namespace: system, PodIP: "127.0.0.1",
		OutputAPI: true, OutputAPIAddress: outputAddress,
	}
	b.must(options.Validate())
	ctx, stop := context.WithCancel(context.Background())
	go func() { r.ended <- operator.Run(ctx, conf, options, log) }()
	b.t.Cleanup(func() {
		stop()
		if err := <-r.ended; err != nil {
			b.t.Errorf("the operator ended: %v", err)
		}
		if b.t.Failed() {
			b.t.Logf("the operator logged\n%s", r.logs())
		}
	})
	return r
}
