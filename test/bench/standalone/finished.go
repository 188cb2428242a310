package standalone

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
)

const (
	// writers create the finished calls.
	writers = 32
	// dayInSeconds keeps finished calls for longer than a run takes.
	dayInSeconds = 24 * 3600
	// NodeName is where every pod is.
	NodeName = "node-1"
)

// CreateFinished writes calls that have ended, numbered from..to-1, while no operator is there that would run them. Each
// has a command and output of so many bytes, so that a cache which kept them would show.
func (s *Server) CreateFinished(ctx context.Context, namespace string, from, to, bytes int) error {
	err := s.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", namespace, err)
	}
	return cluster.Spread(ctx, to-from, writers, func(ctx context.Context, i int) error {
		return s.createFinished(ctx, namespace, fmt.Sprintf("finished-%06d", from+i), bytes)
	})
}

func (s *Server) createFinished(ctx context.Context, namespace, name string, bytes int) error {
	call := &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ToolCallSpec{
			Shell:                   &v1alpha1.ShellAction{Command: "true #" + filler(bytes)},
			EnvironmentRef:          &v1alpha1.LocalReference{Name: cluster.EnvironmentName},
			TTLSecondsAfterFinished: ptr.To(int32(dayInSeconds)),
		},
	}
	if err := s.Client.Create(ctx, call); err != nil {
		return fmt.Errorf("create finished call %s: %w", name, err)
	}
	before := call.DeepCopy()
	call.Status = FinishedStatus(name, bytes)
	if err := s.Client.Status().Patch(ctx, call, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write the status of finished call %s: %w", name, err)
	}
	return nil
}

func filler(bytes int) string {
	const line = "A line that fills the space.\n"
	return strings.Repeat(line, bytes/len(line)+1)[:bytes]
}

// FinishedStatus is what the operator leaves of a call that ended well, with so many bytes of output.
func FinishedStatus(name string, outputBytes int) v1alpha1.ToolCallStatus {
	now, text, digest := metav1.NowMicro(), filler(outputBytes), strings.Repeat("0", 64)
	var conditions []metav1.Condition
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionStarted, v1alpha1.ConditionFinished, v1alpha1.ConditionSucceeded} {
		conditions = append(conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCompleted, Message: "It ran", LastTransitionTime: metav1.Now()})
	}
	return v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhaseSucceeded, Reason: v1alpha1.ReasonCompleted, Message: "The command ended with exit code 0",
		Conditions: conditions, ExitCode: ptr.To(int32(0)), Stdout: text, Output: text + "\nTook 0.1s",
		StartTime: &now, CompletionTime: &now, DurationMilliseconds: ptr.To(int64(100)),
		Streams: &v1alpha1.StreamsStatus{
			Stdout: v1alpha1.StreamStatus{Bytes: int64(outputBytes), SHA256: digest}, Stderr: v1alpha1.StreamStatus{SHA256: digest},
		},
		Timings:     &v1alpha1.CallTimings{AcceptedMilliseconds: ptr.To(int64(1)), StartedMilliseconds: ptr.To(int64(5)), FinishedMilliseconds: ptr.To(int64(110)), Path: v1alpha1.PathWarm},
		Environment: &v1alpha1.ResolvedEnvironment{Name: cluster.EnvironmentName, WorkingDir: "/workspace"},
		Job:         "tc-" + name, Pod: "tc-" + name + "-abcde", Node: NodeName,
		Runner: &v1alpha1.RunnerBinding{PodUID: "00000000-0000-0000-0000-000000000000", KeyHash: digest}, ObservedGeneration: 1,
	}
}
