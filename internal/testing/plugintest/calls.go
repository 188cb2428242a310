package plugintest

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
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/internal/testing/apitest"
)

// Operate takes the operator's place: it passes each new or changed call to decide, and writes the status that decide
// returns.
func (f *Fixture) Operate(decide func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus) {
	f.T.Helper()
	follow(f, &v1alpha1.ToolCallList{}, func(call *v1alpha1.ToolCall) bool {
		if call.Status.Phase.Terminal() {
			return false
		}
		status := decide(call)
		if status != nil {
			call.Status = *status
		}
		return status != nil
	})
}

// follow passes each new or changed object of the namespace to change, and writes its status if change says so.
func follow[T interface {
	client.Object
	DeepCopy() T
}](f *Fixture, list client.ObjectList, change func(T) bool) {
	f.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	watching, err := f.Client.Watch(ctx, list, client.InNamespace(f.Namespace))
	if err != nil {
		f.T.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for event := range watching.ResultChan() {
			object, ok := event.Object.(T)
			if !ok || event.Type == watch.Deleted {
				continue
			}
			before := object.DeepCopy()
			if !change(object) {
				continue
			}
			if err := f.Client.Status().Patch(ctx, object, client.MergeFrom(before)); err != nil && ctx.Err() == nil {
				f.T.Errorf("write the status of %s: %v", object.GetName(), err)
			}
		}
	})
	f.T.Cleanup(func() { cancel(); watching.Stop(); done.Wait() })
}

// setStatus reads an object of the namespace, and writes what change makes of its status.
func setStatus[T interface {
	client.Object
	DeepCopy() T
}](f *Fixture, name string, object T, change func(T)) {
	f.T.Helper()
	read(f, name, object)
	before := object.DeepCopy()
	change(object)
	if err := f.Client.Status().Patch(f.T.Context(), object, client.MergeFrom(before)); err != nil {
		f.T.Fatal(err)
	}
}

func read[T client.Object](f *Fixture, name string, into T) T {
	f.T.Helper()
	return apiservertest.Read(f.T, f.Client, client.ObjectKey{Namespace: f.Namespace, Name: name}, into)
}

// Finished returns a status as the end of a call.
func Finished(s v1alpha1.ToolCallStatus) *v1alpha1.ToolCallStatus {
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.ConditionFinished, Status: metav1.ConditionTrue, Reason: s.Reason})
	return &s
}

// WithOutput adds output to a status.
func WithOutput(s v1alpha1.ToolCallStatus, stdout, stderr string) v1alpha1.ToolCallStatus {
	s.Stdout, s.Stderr = stdout, stderr
	s.Streams = &v1alpha1.StreamsStatus{
		Stdout: v1alpha1.StreamStatus{Bytes: int64(len(stdout))}, Stderr: v1alpha1.StreamStatus{Bytes: int64(len(stderr))},
	}
	return s
}

func Succeeded() v1alpha1.ToolCallStatus {
	return v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseSucceeded, Reason: v1alpha1.ReasonCompleted, ExitCode: ptr.To(int32(0)), DurationMilliseconds: ptr.To(int64(7))}
}

// Running is the status of a call that a pod runs.
func Running(pod string) *v1alpha1.ToolCallStatus {
	s := &v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning, Pod: pod}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.ConditionStarted, Status: metav1.ConditionTrue, Reason: "Started"})
	return s
}

// Call reads a call.
func (f *Fixture) Call(name string) *v1alpha1.ToolCall {
	f.T.Helper()
	return read(f, name, &v1alpha1.ToolCall{})
}

// ExpectText compares what was printed, line by line, without trailing spaces.
func ExpectText(t *testing.T, what, want, got string) {
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

// Labelled creates a call with a label, without waiting for it.
func (f *Fixture) Labelled(name, label string) {
	f.T.Helper()
	f.Run("run", "--detach", "--name", name, "-l", label, "--", "ls").Expect(f.T, 0, name)
}

// Detached creates a call without waiting for it.
func (f *Fixture) Detached(name string) {
	f.T.Helper()
	f.Run("run", "--detach", "--name", name, "--", "ls").Expect(f.T, 0, name)
}

// SetRunning writes what the operator writes when a pod runs the call.
func (f *Fixture) SetRunning(name, pod string) {
	f.T.Helper()
	setStatus(f, name, &v1alpha1.ToolCall{}, func(call *v1alpha1.ToolCall) { call.Status = *Running(pod) })
}

// Writing has a call write to standard output, and returns the stream.
func (f *Fixture) Writing(call *v1alpha1.ToolCall, text string) *apitest.Stream {
	f.Outputs.Add(call, output.Stderr)
	stream := f.Outputs.Add(call, output.Stdout)
	_, _ = stream.Write([]byte(text))
	return stream
}

// Deny creates a call with the flags of run, and finishes it as denied.
func (f *Fixture) Deny(name, reason string, flags ...string) {
	f.T.Helper()
	f.Run(append([]string{"run", "--detach", "--name", name}, flags...)...).Expect(f.T, 0)
	f.End(name, v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhaseDenied, Reason: reason, Message: "message of " + reason, Action: &v1alpha1.MappedAction{Type: v1alpha1.ActionShell, Tool: "bash", Summary: "summary of " + name},
	})
}
