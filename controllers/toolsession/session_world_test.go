package toolsession_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/fixture"
)

func keepingWorkspace(s *v1alpha1.ToolSession) {
	fixture.WithWorkspace(s)
	s.Spec.Workspace.Retain = v1alpha1.RetainKeep
}

func askedBy(user string) func(*v1alpha1.ToolSession) {
	return func(s *v1alpha1.ToolSession) { s.Spec.RequestedBy = &v1alpha1.Requester{Username: user} }
}

func isHeldByFinalizer(s *v1alpha1.ToolSession) bool {
	return s.IsHeld()
}

func seconds(n int32) *int32 { return ptr.To(n) }

// waitingFor is a container that the kubelet can't start yet.
func waitingFor(reason string) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		s.Phase = corev1.PodPending
		s.ContainerStatuses = []corev1.ContainerStatus{{
			Name: jobspec.ContainerName, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "no"}},
		}}
	}
}

// running is a call that runs in a session's runner.
func running(c *v1alpha1.ToolCall) wire.Held {
	return wire.Held{UID: string(c.UID), Name: c.Name, State: wire.Running, Decision: "sealed"}
}

// withoutCalls is a cache that is behind: it has no calls.
type withoutCalls struct{ client.Client }

// List implements client.Reader.
func (c withoutCalls) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*v1alpha1.ToolCallList); ok {
		return nil
	}
	return c.Client.List(ctx, list, opts...)
}

// outdated is a cache that is behind: it has a session as it was.
type outdated struct {
	client.Client
	session *v1alpha1.ToolSession
}

// Get implements client.Reader.
func (c outdated) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if session, ok := o.(*v1alpha1.ToolSession); ok && key == client.ObjectKeyFromObject(c.session) {
		c.session.DeepCopyInto(session)
		return nil
	}
	return c.Client.Get(ctx, key, o, opts...)
}
