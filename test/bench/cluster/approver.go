package cluster

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// Approver is a user other than the creator of a namespace's calls, who approves them one at a time. Its tracker creates what it
// approves with, and sees the ends of the calls.
type Approver struct {
	*Tracker
	// creator creates the calls.
	creator   client.Client
	namespace string
	// asked is how many calls were created, approval is for the last of them, which waits for it.
	asked    int
	approval *v1alpha1.ToolCallApproval
}

// NewApprover lets a user approve a namespace's calls.
func NewApprover(ctx context.Context, conf *rest.Config, c client.Client, namespace string) (*Approver, error) {
	conf = rest.CopyConfig(conf)
	conf.Impersonate = rest.ImpersonationConfig{UserName: namespace + "-approver"}
	as, err := Connect(conf)
	if err != nil {
		return nil, err
	}
	err = Create(ctx, c, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "approver"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "toolcall-approver"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: conf.Impersonate.UserName}},
	})
	if err != nil {
		return nil, err
	}
	a := &Approver{creator: c, namespace: namespace}
	// The API server knows the binding a moment later. The watch outlives the wait for it.
	return a, Eventually(ctx, "the approver's rights", func(context.Context) (bool, error) {
		if a.Tracker, err = TrackCalls(ctx, as, namespace); apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// Ask creates the next call, and waits until it asks for an approval. It has no pod meanwhile.
func (a *Approver) Ask(ctx context.Context) error {
	call := NewCall(a.namespace, fmt.Sprintf("asks-%06d", a.asked))
	a.asked++
	if err := Create(ctx, a.creator, call); err != nil {
		return err
	}
	err := Eventually(ctx, "call "+call.Name+" to ask for approval", func(ctx context.Context) (bool, error) {
		if err := a.creator.Get(ctx, client.ObjectKeyFromObject(call), call); err != nil {
			return false, err
		}
		if call.Status.Phase.Terminal() {
			return false, fmt.Errorf("it ended %s/%s: %s", call.Status.Phase, call.Status.Reason, call.Status.Message)
		}
		return call.AwaitsApproval(), nil
	})
	if err == nil {
		a.approval = approvalOf(call)
	}
	return err
}

// Approve approves that call, and returns it as it ended.
func (a *Approver) Approve(ctx context.Context) (client.Object, error) { return a.Run(ctx, a.approval) }

// approvalOf has the call's name, by which the tracker knows whose end is waited for.
func approvalOf(call *v1alpha1.ToolCall) *v1alpha1.ToolCallApproval {
	return &v1alpha1.ToolCallApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: call.Namespace, Name: call.Name},
		Spec: v1alpha1.ToolCallApprovalSpec{
			CallRef: v1alpha1.CallReference{Name: call.Name, UID: string(call.UID)},
			Digest:  call.Status.Approval.Digest, Decision: v1alpha1.DecisionApprove,
		},
	}
}
