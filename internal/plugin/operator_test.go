package plugin

import (
	"context"
	"strings"
	"sync"
	"testing"

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
