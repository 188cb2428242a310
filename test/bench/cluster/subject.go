package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// Subject is something to be measured: objects of one kind in a namespace.
type Subject struct {
	Namespace string
	// New builds the object to create.
	New func(at metav1.ObjectMeta) client.Object
	// List is what a watch is opened on.
	List client.ObjectList
	// Done says that an object has ended as it should; the error, that it ended otherwise.
	Done func(client.Object) (bool, error)
}

// Make builds the object of that name.
func (s Subject) Make(name string) client.Object {
	return s.New(metav1.ObjectMeta{Namespace: s.Namespace, Name: name})
}

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

// SetPool says how many pods are to wait in a namespace's environment.
func SetPool(ctx context.Context, c client.Client, namespace string, size int) error {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"warmPool":{"size":%d}}}`, size))
	if err := c.Patch(ctx, NewEnvironment(namespace, "", ""), patch); err != nil {
		return fmt.Errorf("set the size of the pool in %s: %w", namespace, err)
	}
	return nil
}

// Calls are calls of the shortest command in a namespace with an environment.
func Calls(namespace string) Subject {
	return Subject{Namespace: namespace, New: NewCall, List: &v1alpha1.ToolCallList{}, Done: callDone}
}

// NewCall is one such call.
func NewCall(at metav1.ObjectMeta) client.Object {
	return &v1alpha1.ToolCall{ObjectMeta: at, Spec: v1alpha1.ToolCallSpec{
		Structured:     &v1alpha1.StructuredAction{Binary: "true"},
		EnvironmentRef: &v1alpha1.LocalReference{Name: EnvironmentName},
	}}
}

func callDone(o client.Object) (bool, error) {
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
