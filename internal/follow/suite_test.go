package follow_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
)

// The API server of all tests, nil when there is none, and one that tells the streams of a log apart, which is
// started by the first test that needs it.
var (
	apiServer *rest.Config
	started   []*envtest.Environment
	splitting = sync.OnceValues(func() (*rest.Config, error) { return startServer("PodLogsQuerySplitStreams=true") })
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	defer func() {
		for _, env := range started {
			_ = env.Stop()
		}
	}()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Fprintln(os.Stderr, "the tests that need an API server are skipped: set KUBEBUILDER_ASSETS, e.g. to the output of 'make -s envtest-assets'")
		return m.Run()
	}
	var err error
	if apiServer, err = startServer(""); err != nil {
		fmt.Fprintln(os.Stderr, "start the API server:", err)
		return 1
	}
	return m.Run()
}

func startServer(gates string) (*rest.Config, error) {
	env := &envtest.Environment{CRDDirectoryPaths: []string{"../../config/crd"}, ErrorIfCRDPathMissing: true}
	if gates != "" {
		env.ControlPlane.GetAPIServer().Configure().Append("feature-gates", gates)
	}
	config, err := env.Start()
	if err != nil {
		return nil, err
	}
	started = append(started, env)
	config.QPS, config.Burst = 500, 1000
	return config, nil
}

// world is a namespace, clients, and a node whose kubelet is a handler of the test's.
type world struct {
	t         *testing.T
	config    *rest.Config
	calls     client.WithWatch
	pods      *corev1client.CoreV1Client
	namespace string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if apiServer == nil {
		t.Skip("needs an API server: set KUBEBUILDER_ASSETS")
	}
	return newWorldAt(t, apiServer)
}

func newWorldAt(t *testing.T, config *rest.Config) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, v1alpha1.AddToScheme(scheme))
	calls, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	must(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "follow-"}}
	must(t, calls.Create(t.Context(), namespace))
	return &world{t: t, config: config, calls: calls, pods: corev1client.NewForConfigOrDie(config), namespace: namespace.Name}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) clients() follow.Clients { return follow.Clients{Calls: w.calls, Pods: w.pods} }

// create makes a call.
func (w *world) create() *v1alpha1.ToolCall {
	w.t.Helper()
	call, err := w.clients().Create(w.t.Context(), &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "call-"},
		Spec:       v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "true"}},
	})
	must(w.t, err)
	return call
}

// start writes what the operator writes when a pod has the call.
func (w *world) start(call *v1alpha1.ToolCall, pod string) {
	w.t.Helper()
	w.patch(call, func(s *v1alpha1.ToolCallStatus) {
		s.Phase, s.Pod = v1alpha1.PhaseRunning, pod
		meta.SetStatusCondition(&s.Conditions, condition(v1alpha1.ConditionStarted))
	})
}

// finish writes an end with the given output.
func (w *world) finish(call *v1alpha1.ToolCall, stdout, stderr string, change ...func(*v1alpha1.ToolCallStatus)) {
	w.t.Helper()
	w.patch(call, func(s *v1alpha1.ToolCallStatus) {
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

func (w *world) patch(call *v1alpha1.ToolCall, change func(*v1alpha1.ToolCallStatus)) {
	w.t.Helper()
	before := call.DeepCopy()
	change(&call.Status)
	must(w.t, w.calls.Status().Patch(w.t.Context(), call, client.MergeFrom(before)))
}

// kubelet serves the logs of one pod, and gives the pod's name.
func (w *world) kubelet(serve func(w http.ResponseWriter, r *http.Request)) string {
	w.t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/containerLogs/"+w.namespace+"/pod/call") {
			http.NotFound(rw, r)
			return
		}
		serve(rw, r)
	}))
	w.t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	must(w.t, err)
	port, err := strconv.Atoi(address.Port())
	must(w.t, err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	must(w.t, w.calls.Create(w.t.Context(), node))
	node.Status = corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}},
	}
	must(w.t, w.calls.Status().Update(w.t.Context(), node))
	must(w.t, w.calls.Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "pod"},
		Spec:       corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "call", Image: "example.com/none"}}},
	}))
	return "pod"
}

// seen is what a Watcher was told.
type seen struct {
	mu             sync.Mutex
	out, err       strings.Builder
	phases         []v1alpha1.Phase
	notices        []string
	changed, wrote chan struct{}
}

func newSeen() *seen {
	return &seen{changed: make(chan struct{}, 100), wrote: make(chan struct{}, 10000)}
}

func (s *seen) watcher() follow.Watcher {
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

func (s *seen) text() (out, err string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String(), s.err.String()
}

// until waits for a signal.
func until(t *testing.T, what string, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(20 * time.Second):
		t.Fatalf("no %s", what)
	}
}

// ended is what Wait returned.
type ended struct {
	call *v1alpha1.ToolCall
	err  error
}

// wait runs Wait in the background.
func (w *world) wait(ctx context.Context, clients follow.Clients, call *v1alpha1.ToolCall, watcher follow.Watcher) <-chan ended {
	done := make(chan ended, 1)
	key := client.ObjectKeyFromObject(call)
	go func() {
		call, err := clients.Wait(ctx, key, watcher)
		done <- ended{call, err}
	}()
	return done
}

func result(t *testing.T, done <-chan ended) ended {
	t.Helper()
	select {
	case e := <-done:
		return e
	case <-time.After(20 * time.Second):
		t.Fatal("Wait didn't return")
		return ended{}
	}
}
