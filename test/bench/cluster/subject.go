package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// EnvironmentName is that of every environment of the benchmark: each has a namespace to itself.
const EnvironmentName = "bench"

// NewEnvironment is an environment for calls that run under that policy.
func NewEnvironment(namespace, policy, image string) *v1alpha1.ExecutionEnvironment {
	env := &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: EnvironmentName},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: image, ImagePullPolicy: corev1.PullIfNotPresent},
	}
	if policy != "" {
		env.Spec.PolicyRef = &v1alpha1.PolicyReference{Name: policy}
	}
	return env
}

// Pool is the state of an environment's waiting pods, and whether the environment is ready.
func Pool(ctx context.Context, c client.Client, namespace string) (pool v1alpha1.WarmStatus, ready bool, err error) {
	env := NewEnvironment(namespace, "", "")
	err = c.Get(ctx, client.ObjectKeyFromObject(env), env)
	return ptr.Deref(env.Status.Warm, pool), meta.IsStatusConditionTrue(env.Status.Conditions, v1alpha1.ConditionReady), err
}

// AwaitEnvironment waits until an environment is ready and so many pods wait in it, whose runners must be back when the
// operator was restarted.
func AwaitEnvironment(ctx context.Context, c client.Client, namespace string, size int) error {
	what := fmt.Sprintf("the environment in %s to be ready with %d waiting pods (is the operator running?)", namespace, size)
	return Eventually(ctx, what, func(ctx context.Context) (bool, error) {
		pool, ready, err := Pool(ctx, c, namespace)
		return ready && int(pool.Ready) == size, err
	})
}

// NewCall is a call of the shortest command in a namespace with an environment.
func NewCall(namespace, name string) *v1alpha1.ToolCall {
	return &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ToolCallSpec{
			Structured:     &v1alpha1.StructuredAction{Binary: "true"},
			EnvironmentRef: &v1alpha1.LocalReference{Name: EnvironmentName},
		},
	}
}

// AwaitStamp waits until calls are served in a namespace, and until admission stamps their creator.
func AwaitStamp(ctx context.Context, c client.Client, namespace string) error {
	return Eventually(ctx, "the admission policies to be in force", func(ctx context.Context) (bool, error) {
		probe := NewCall(namespace, "probe")
		err := c.Create(ctx, probe, client.DryRunAll)
		return err == nil && probe.Spec.RequestedBy != nil, nil
	})
}

// NewSession is a session in a namespace with an environment, which nothing ends but the benchmark.
func NewSession(namespace, name string, concurrent int) *v1alpha1.ToolSession {
	return &v1alpha1.ToolSession{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ToolSessionSpec{
			EnvironmentRef: &v1alpha1.LocalReference{Name: EnvironmentName}, IdleTimeoutSeconds: ptr.To(int32(0)),
			MaxConcurrentCalls: ptr.To(int32(concurrent)), MaxCalls: ptr.To(int32(100_000)),
		},
	}
}

// Open creates a session and waits until it takes calls.
func Open(ctx context.Context, c client.Client, session *v1alpha1.ToolSession) error {
	if err := Create(ctx, c, session); err != nil {
		return err
	}
	return Eventually(ctx, "session "+session.Name+" to be ready", func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(session), session); err != nil {
			return false, err
		}
		return sessionReady(session)
	})
}

func sessionReady(session *v1alpha1.ToolSession) (bool, error) {
	status := session.Status
	if status.Phase == v1alpha1.SessionEnded {
		return false, fmt.Errorf("the session ended %s: %s", status.Reason, status.Message)
	}
	return status.Phase == v1alpha1.SessionReady && meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady), nil
}

// CallOf is a call of the shortest command in a session.
func CallOf(session *v1alpha1.ToolSession, name string) *v1alpha1.ToolCall {
	call := NewCall(session.Namespace, name)
	call.Spec.EnvironmentRef = nil
	call.Spec.SessionRef = &v1alpha1.SessionReference{Name: session.Name, UID: string(session.UID)}
	return call
}

// TrackCalls opens a watch for the ends of a namespace's calls.
func TrackCalls(ctx context.Context, c client.WithWatch, namespace string) (*Tracker, error) {
	return Track(ctx, c, namespace, &v1alpha1.ToolCallList{}, CallDone)
}

// CallDone says that a call has ended well; the error, that it ended otherwise.
func CallDone(o client.Object) (bool, error) {
	status := o.(*v1alpha1.ToolCall).Status
	if !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionFinished) {
		return false, nil
	}
	if status.Phase != v1alpha1.PhaseSucceeded {
		return false, fmt.Errorf("the call ended %s/%s: %s", status.Phase, status.Reason, status.Message)
	}
	return true, nil
}

// PatchStatus writes a call's status as the operator does.
func PatchStatus(ctx context.Context, c client.Client, call *v1alpha1.ToolCall, status v1alpha1.ToolCallStatus) error {
	before := call.DeepCopy()
	call.Status = status
	if err := c.Status().Patch(ctx, call, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write the status of call %s: %w", call.Name, err)
	}
	return nil
}
