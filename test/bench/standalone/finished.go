package standalone

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
)

const (
	// writers create the finished calls.
	writers = 32
	// dayInSeconds keeps finished calls for longer than a run takes.
	dayInSeconds = 24 * 3600
	// finishedBytes is the length of the command and of the output of each.
	finishedBytes = 4096
)

// CreateFinished writes calls that have ended, while no operator is there that would run them. Each has a command and
// output, so that a cache which kept them would show.
func (s *Server) CreateFinished(ctx context.Context, namespace string, calls int) error {
	if err := cluster.Create(ctx, s.Client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return err
	}
	return cluster.Spread(ctx, calls, writers, func(ctx context.Context, i int) error {
		return s.createFinished(ctx, namespace, fmt.Sprintf("finished-%06d", i))
	})
}

func (s *Server) createFinished(ctx context.Context, namespace, name string) error {
	call := &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ToolCallSpec{
			Shell:                   &v1alpha1.ShellAction{Command: "true #" + cluster.Filler(finishedBytes)},
			EnvironmentRef:          &v1alpha1.LocalReference{Name: cluster.EnvironmentName},
			TTLSecondsAfterFinished: ptr.To(int32(dayInSeconds)),
		},
	}
	if err := cluster.Create(ctx, s.Client, call); err != nil {
		return err
	}
	return cluster.PatchStatus(ctx, s.Client, call, cluster.FinishedStatus(name, finishedBytes))
}
