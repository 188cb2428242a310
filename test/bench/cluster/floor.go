package cluster

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/internal/follow"
)

// NodeName is where every pod is that a benchmark makes up.
const NodeName = "node-1"

// floorOutput is the output of a call of the floor, in bytes: that of a small command.
const floorOutput = 64

// Floor is calls that cost as little as any can: somebody creates one, another client that sees it writes its status
// once, and that is seen. What is left of a controller is the API server: no operator can be faster.
type Floor struct {
	*Tracker
	follower  *follow.Follower
	answering errgroup.Group
}

// StartFloor has the calls of a namespace, in which no operator works, answered by the other client until Stop.
func StartFloor(ctx context.Context, c, other client.WithWatch, namespace string) (*Floor, error) {
	f := &Floor{}
	answer := func(event watch.Event) {
		if call, ok := event.Object.(*v1alpha1.ToolCall); ok && event.Type == watch.Added {
			f.answering.Go(func() error { return PatchStatus(ctx, other, call, FinishedStatus(call.Name, floorOutput)) })
		}
	}
	var err error
	if f.follower, err = follow.Start(ctx, other, &v1alpha1.ToolCallList{}, namespace, answer); err != nil {
		return nil, err
	}
	if f.Tracker, err = TrackCalls(ctx, c, namespace); err != nil {
		return nil, errors.Join(err, f.follower.Stop(), f.answering.Wait())
	}
	return f, nil
}

// Stop ends both clients, and says what failed.
func (f *Floor) Stop() error {
	return errors.Join(f.Tracker.Stop(), f.follower.Stop(), f.answering.Wait())
}

// Filler is text of so many bytes.
func Filler(bytes int) string {
	const line = "A line that fills the space.\n"
	return strings.Repeat(line, bytes/len(line)+1)[:bytes]
}

// FinishedStatus is what the operator leaves of a call that ended well, with so many bytes of output.
func FinishedStatus(name string, outputBytes int) v1alpha1.ToolCallStatus {
	now, text, digest := metav1.NowMicro(), Filler(outputBytes), strings.Repeat("0", 64)
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
		Environment: &v1alpha1.ResolvedEnvironment{Name: EnvironmentName, WorkingDir: "/workspace"},
		Job:         "tc-" + name, Pod: "tc-" + name + "-abcde", Node: NodeName,
		Runner: &v1alpha1.RunnerBinding{PodUID: "00000000-0000-0000-0000-000000000000", KeyHash: digest}, ObservedGeneration: 1,
	}
}
