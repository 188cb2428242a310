package follow_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/subresources/apitest"
)

// apiServer is the API server of all tests, and outputs the aggregated API behind it; nil if there are none.
var (
	apiServer *rest.Config
	outputs   *apitest.API
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
	dir, err := os.MkdirTemp("", "follow")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	env := &envtest.Environment{CRDDirectoryPaths: []string{"../../config/crd"}, ErrorIfCRDPathMissing: true, ControlPlaneStartTimeout: testTimeout}
	if err := startServer(env, dir); err != nil {
		fmt.Fprintln(os.Stderr, "start the API server:", err)
		_ = env.Stop()
		return 1
	}
	return max(m.Run(), stopAndFindLeaks(env))
}

// stopAndFindLeaks stops the API server, which ends the connections to it, and reports goroutines that tests left.
func stopAndFindLeaks(env *envtest.Environment) (code int) {
	if err := errors.Join(outputs.Stop(), env.Stop()); err != nil {
		fmt.Fprintln(os.Stderr, "stop the API server:", err)
	}
	if err := goleak.Find(apitest.Leaks()...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func startServer(env *envtest.Environment, dir string) error {
	if _, err := apitest.Prepare(env, dir); err != nil {
		return err
	}
	config, err := env.Start()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 500, 1000
	apiServer = config
	outputs, err = apitest.Start(config)
	return err
}

// fixture is a namespace with clients.
type fixture struct {
	t         *testing.T
	calls     client.WithWatch
	output    *outputclient.Client
	namespace string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	if apiServer == nil {
		t.Skip("needs an API server: set KUBEBUILDER_ASSETS")
	}
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, v1alpha1.AddToScheme(scheme))
	calls, err := client.NewWithWatch(apiServer, client.Options{Scheme: scheme})
	must(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "follow-"}}
	must(t, calls.Create(t.Context(), namespace))
	return &fixture{t: t, calls: calls, output: newOutput(t, apiServer), namespace: namespace.Name}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newOutput(t *testing.T, config *rest.Config) *outputclient.Client {
	t.Helper()
	output, err := outputclient.New(config)
	must(t, err)
	return output
}

func (f *fixture) clients() follow.Clients { return follow.Clients{Calls: f.calls, Output: f.output} }

// create creates a call.
func (f *fixture) create() *v1alpha1.ToolCall {
	f.t.Helper()
	call, err := f.clients().Create(f.t.Context(), &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, GenerateName: "call-"},
		Spec:       v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "true"}},
	})
	must(f.t, err)
	return call
}

// start writes what the operator writes when a pod runs the call.
func (f *fixture) start(call *v1alpha1.ToolCall, pod string) {
	f.t.Helper()
	f.patch(call, func(s *v1alpha1.ToolCallStatus) {
		s.Phase, s.Pod = v1alpha1.PhaseRunning, pod
		meta.SetStatusCondition(&s.Conditions, condition(v1alpha1.ConditionStarted))
	})
}

// finish writes the end of the call, with the given output.
func (f *fixture) finish(call *v1alpha1.ToolCall, stdout, stderr string, change ...func(*v1alpha1.ToolCallStatus)) {
	f.t.Helper()
	f.patch(call, func(s *v1alpha1.ToolCallStatus) {
		s.Phase, s.Stdout, s.Stderr = v1alpha1.PhaseSucceeded, stdout, stderr
		s.Streams = &v1alpha1.StreamsStatus{
			Stdout: v1alpha1.StreamStatus{Bytes: int64(len(stdout))}, Stderr: v1alpha1.StreamStatus{Bytes: int64(len(stderr))},
		}
		for _, c := range change {
			c(s)
		}
		meta.SetStatusCondition(&s.Conditions, condition(v1alpha1.ConditionFinished))
	})
}

func condition(kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()}
}

func (f *fixture) patch(call *v1alpha1.ToolCall, change func(*v1alpha1.ToolCallStatus)) {
	f.t.Helper()
	before := call.DeepCopy()
	change(&call.Status)
	must(f.t, f.calls.Status().Patch(f.t.Context(), call, client.MergeFrom(before)))
}

// recorder records what a Watcher receives.
type recorder struct {
	mu             sync.Mutex
	out, err       strings.Builder
	phases         []v1alpha1.Phase
	notices        []string
	changed, wrote chan struct{}
}

func newRecorder() *recorder {
	return &recorder{changed: make(chan struct{}, 100), wrote: make(chan struct{}, 10000)}
}

func (s *recorder) watcher() follow.Watcher {
	locked := func(do func()) { s.mu.Lock(); defer s.mu.Unlock(); do() }
	return follow.Watcher{
		Changed: func(c *v1alpha1.ToolCall) {
			locked(func() { s.phases = append(s.phases, c.Status.Phase) })
			s.changed <- struct{}{}
		},
		Output: func(b []byte) { locked(func() { s.out.Write(b) }); s.wrote <- struct{}{} },
		Errors: func(b []byte) { locked(func() { s.err.Write(b) }); s.wrote <- struct{}{} },
		Notice: func(text string) { locked(func() { s.notices = append(s.notices, text) }) },
	}
}

func (s *recorder) text() (out, err string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String(), s.err.String()
}

// testTimeout bounds every wait, so that a test that fails ends.
const testTimeout = 2 * time.Minute

// until waits for a signal.
func until(t *testing.T, what string, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(testTimeout):
		t.Fatalf("no %s", what)
	}
}

// outcome is what Wait returned.
type outcome struct {
	call *v1alpha1.ToolCall
	err  error
}

// wait runs Wait in the background.
func (f *fixture) wait(ctx context.Context, clients follow.Clients, call *v1alpha1.ToolCall, watcher follow.Watcher) <-chan outcome {
	done := make(chan outcome, 1)
	key := client.ObjectKeyFromObject(call)
	go func() {
		call, err := clients.Wait(ctx, key, watcher)
		done <- outcome{call, err}
	}()
	return done
}

func result(t *testing.T, done <-chan outcome) outcome {
	t.Helper()
	select {
	case e := <-done:
		return e
	case <-time.After(testTimeout):
		t.Fatal("Wait didn't return")
		return outcome{}
	}
}
