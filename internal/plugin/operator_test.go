package plugin

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// operate takes the operator's place: it passes each new or changed call to decide, and writes the status that decide
// returns.
func (f *fixture) operate(decide func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	watching, err := f.client.Watch(ctx, &v1alpha1.ToolCallList{}, client.InNamespace(f.namespace))
	if err != nil {
		f.t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for event := range watching.ResultChan() {
			call, ok := event.Object.(*v1alpha1.ToolCall)
			if !ok || event.Type == watch.Deleted || call.Status.Phase.Terminal() {
				continue
			}
			if status := decide(call); status != nil {
				before := call.DeepCopy()
				call.Status = *status
				if err := f.client.Status().Patch(ctx, call, client.MergeFrom(before)); err != nil && ctx.Err() == nil {
					f.t.Errorf("write the status of %s: %v", call.Name, err)
				}
			}
		}
	})
	f.t.Cleanup(func() { cancel(); watching.Stop(); done.Wait() })
}

// finished returns a status as the end of a call.
func finished(s v1alpha1.ToolCallStatus) *v1alpha1.ToolCallStatus {
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.ConditionFinished, Status: metav1.ConditionTrue, Reason: s.Reason})
	return &s
}

// withOutput adds output to a status.
func withOutput(s v1alpha1.ToolCallStatus, stdout, stderr string) v1alpha1.ToolCallStatus {
	s.Stdout, s.Stderr = stdout, stderr
	s.Streams = &v1alpha1.StreamsStatus{
		Stdout: v1alpha1.StreamStatus{Bytes: int64(len(stdout))}, Stderr: v1alpha1.StreamStatus{Bytes: int64(len(stderr))},
	}
	return s
}

func succeeded() v1alpha1.ToolCallStatus {
	return v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseSucceeded, Reason: v1alpha1.ReasonCompleted, ExitCode: ptr.To(int32(0)), DurationMilliseconds: ptr.To(int64(7))}
}

// running is the status of a call that a pod runs.
func running(pod string) *v1alpha1.ToolCallStatus {
	s := &v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning, Pod: pod}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.ConditionStarted, Status: metav1.ConditionTrue, Reason: "Started"})
	return s
}

// kubelet serves the log of a pod in the namespace, and returns the name of the pod.
func (f *fixture) kubelet(serve http.HandlerFunc) string {
	f.t.Helper()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/containerLogs/"+f.namespace+"/pod/call") {
			http.NotFound(w, r)
			return
		}
		serve(w, r)
	}))
	f.t.Cleanup(kubelet.Close)
	address, err := url.Parse(kubelet.URL)
	if err != nil {
		f.t.Fatal(err)
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		f.t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	f.make(node)
	node.Status = corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}},
	}
	if err := f.client.Status().Update(f.t.Context(), node); err != nil {
		f.t.Fatal(err)
	}
	f.make(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "pod"},
		Spec:       corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "call", Image: "example.com/none"}}},
	})
	return "pod"
}

// stream serves a log that begins with a text and stays open until the client closes it.
func stream(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, text)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// call reads a call.
func (f *fixture) call(name string) *v1alpha1.ToolCall {
	f.t.Helper()
	call := &v1alpha1.ToolCall{}
	if err := f.client.Get(f.t.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, call); err != nil {
		f.t.Fatal(err)
	}
	return call
}

// expectText compares what was printed, line by line, without trailing spaces.
func expectText(t *testing.T, what, want, got string) {
	t.Helper()
	if trimmed(want) != trimmed(got) {
		t.Errorf("%s is\n%s\nwant\n%s", what, got, want)
	}
}

func trimmed(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}
