package faults

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/built"
)

const (
	operatorNamespace = "toolcall-system"
	operatorName      = "toolcall-operator"
	toolImage         = "toolcall.dev/tools:dev"
	// labelRun marks what one run of the tests made in the cluster.
	labelRun = "toolcall.dev/faults-run"
	// patience bounds every wait that a test doesn't bound itself.
	patience = 4 * time.Minute
)

// suite is the connection to the local cluster that all tests share.
type suite struct {
	client  client.WithWatch
	clients *kubernetes.Clientset
	config  *rest.Config
	// id is in the names of all that this run makes.
	id string
	// state is the local cluster's folder, which the machine and the node see alike.
	state string
	// program controls the local cluster.
	program string
}

// connect is done once, by the first test.
var connect = sync.OnceValues(newSuite)

func TestMain(m *testing.M) {
	code := m.Run()
	if enabled() {
		if err := summarize(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "write the summary:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func enabled() bool { return os.Getenv("TOOLCALL_FAULTS") == "1" }

// local gives the connection, or skips the test where fault tests weren't asked for.
func local(t *testing.T) *suite {
	t.Helper()
	if !enabled() {
		t.Skip("fault tests run with TOOLCALL_FAULTS=1 on the local cluster; `make test-faults` does that")
	}
	s, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newSuite() (*suite, error) {
	// Going through `go run` each time would delay what a test wants to happen now.
	program, err := built.Helper("cluster")
	if err != nil {
		return nil, err
	}
	path, err := requireLocal(program)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read KUBECONFIG: %w", err)
	}
	config.QPS, config.Burst = 200, 400
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("build the scheme: %w", err)
	}
	s := &suite{config: config, id: strings.ToLower(rand.Text()[:6]), state: filepath.Dir(path), program: program}
	if s.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	if s.clients, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	return s, nil
}

// requireLocal refuses any cluster but the local one: these tests stop API servers.
func requireLocal(program string) (kubeconfig string, err error) {
	out, err := exec.Command(program, "kubeconfig").Output()
	if err != nil {
		return "", errors.New("the fault tests break the cluster that they run on, and need the local one: `make cluster-up` starts it")
	}
	kubeconfig = strings.TrimSpace(string(out))
	if named := os.Getenv("KUBECONFIG"); named != kubeconfig {
		return "", fmt.Errorf("KUBECONFIG is %q: the fault tests break the cluster that they run on, and only work on the local one, %s", named, kubeconfig)
	}
	return kubeconfig, nil
}

// must stops the test at an error that it isn't about.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await looks again and again until it is true. While things are broken an error is no answer.
func await(t *testing.T, what string, look func(context.Context) (bool, error)) {
	t.Helper()
	var last error
	// Also when the test has ended, and its context with it, things are waited for.
	ctx := context.WithoutCancel(t.Context())
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		var done bool
		done, last = look(ctx)
		return done && last == nil, nil
	})
	if err != nil {
		t.Fatalf("no %s after %s: %v", what, patience, errors.Join(err, last))
	}
}
