package follow_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/testing/apitest"
)

// outputs is the aggregated API behind the API server; nil if there is none.
var outputs *apitest.API

var suite = apitest.Suite(&outputs, nil)

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// fixture is a namespace with clients.
type fixture struct {
	t         *testing.T
	calls     client.WithWatch
	output    *outputclient.Client
	namespace string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	server := suite.Need(t)
	namespace, calls := server.Namespace(t, "follow-")
	return &fixture{t: t, calls: calls, output: newOutput(t, server.Config), namespace: namespace}
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
