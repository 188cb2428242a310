package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

const (
	operatorNamespace = "toolcall-system"
	operatorName      = "toolcall-operator"
	toolImage         = "toolcall.dev/tools:dev"
	// labelRun marks what one run of the tests made in the cluster.
	labelRun = "toolcall.dev/e2e-run"
)

// patience bounds every wait that a test doesn't bound itself: longer on a node that starts slowly, as in a machine that translates.
var patience = time.Duration(4*slowness()) * time.Minute

func slowness() int {
	n, _ := strconv.Atoi(os.Getenv("TOOLCALL_CLUSTER_SLOW"))
	return max(n, 1)
}

// suite is the connection to the cluster that all tests share.
type suite struct {
	config  *rest.Config
	client  client.WithWatch
	clients *kubernetes.Clientset
	// id is in the names of all that this run makes.
	id string
	// root is the project's folder.
	root string
	// fillsRequester says that the cluster has MutatingAdmissionPolicies, which fill spec.requestedBy in.
	fillsRequester bool
}

// connect is done once, by the first test that needs the cluster.
var connect = sync.OnceValues(newSuite)

func TestMain(m *testing.M) {
	code := m.Run()
	if enabled() {
		for what, err := range map[string]error{"cleaning up": leaveNothing(), "paths": checkPaths()} {
			if err != nil {
				fmt.Fprintln(os.Stderr, what+":", err)
				code = 1
			}
		}
		missing, err := missingReasons()
		if err != nil || len(missing) > 0 {
			fmt.Fprintf(os.Stderr, "every terminal reason must be reached: no call ended %v; error: %v\n", missing, err)
			code = 1
		}
	}
	os.Exit(code)
}

func enabled() bool { return os.Getenv("TOOLCALL_E2E") == "1" }

// isWholeRun says that no flag selects tests.
func isWholeRun() bool {
	for _, selects := range []string{"test.run", "test.skip"} {
		if f := flag.Lookup(selects); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return true
}

// cluster gives the connection, or skips the test where end-to-end tests weren't asked for.
func cluster(t *testing.T) *suite {
	t.Helper()
	if !enabled() {
		t.Skip("end-to-end tests run with TOOLCALL_E2E=1 and KUBECONFIG set; `make test` does that")
	}
	s, err := connect()
	if err != nil {
		t.Fatalf("connect to the cluster: %v", err)
	}
	return s
}

func newSuite() (*suite, error) {
	if os.Getenv("KUBECONFIG") == "" {
		return nil, errors.New("TOOLCALL_E2E=1 needs KUBECONFIG: `make cluster-up` starts a cluster, `make -s kubeconfig` prints the path")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, fmt.Errorf("read KUBECONFIG: %w", err)
	}
	config.QPS, config.Burst = 200, 400
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return nil, fmt.Errorf("find the project's folder: %w", err)
	}
	s := &suite{config: config, root: root, id: strings.ToLower(rand.Text()[:6])}
	if s.fillsRequester, err = fillsRequester(config); err != nil {
		return nil, err
	}
	if s.client, err = s.newClient(config); err != nil {
		return nil, err
	}
	if s.clients, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	return s, s.requireOperator()
}

func (s *suite) newClient(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("build the scheme: %w", err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	if s.fillsRequester {
		return c, nil
	}
	return withRequester(c, config)
}

func (s *suite) requireOperator() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	deployment, err := s.clients.AppsV1().Deployments(operatorNamespace).Get(ctx, operatorName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("find the operator (`make deploy` installs it): %w", err)
	}
	if deployment.Status.ReadyReplicas == 0 {
		return errors.New("the operator is not ready: see kubectl -n toolcall-system get pods")
	}
	return nil
}

// as is a client that acts as somebody else. No groups means those of any authenticated user.
func (s *suite) as(t *testing.T, username string, groups ...string) client.WithWatch {
	t.Helper()
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: username, Groups: groups}
	c, err := s.newClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// leaveNothing waits until all that this run made is gone.
func leaveNothing() error {
	s, err := connect()
	if err != nil {
		return nil // Nothing was made.
	}
	ctx := context.Background()
	own := client.MatchingLabels{labelRun: s.id}
	for _, o := range []client.Object{&v1alpha1.ExecutionPolicy{}} {
		if err := s.client.DeleteAllOf(ctx, o, own); err != nil {
			return fmt.Errorf("delete policies: %w", err)
		}
	}
	return wait.PollUntilContextTimeout(ctx, time.Second, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		namespaces := &corev1.NamespaceList{}
		if err := s.client.List(ctx, namespaces, own); err != nil {
			return false, fmt.Errorf("list namespaces: %w", err)
		}
		return len(namespaces.Items) == 0, nil
	})
}

// must stops the test at an error that it isn't about.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// discard deletes at the end of the test; what is gone already is fine.
func (s *suite) discard(t *testing.T, o client.Object) {
	t.Cleanup(func() {
		if err := s.client.Delete(context.Background(), o); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete %T %s: %v", o, o.GetName(), err)
		}
	})
}

// condition returns the state of a condition, empty when it isn't there.
func condition(call *v1alpha1.ToolCall, kind string) metav1.ConditionStatus {
	c := meta.FindStatusCondition(call.Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return c.Status
}
