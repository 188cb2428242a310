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

// TrackAsApprover lets a user other than the creator of a namespace's calls approve them, and opens a watch of the calls as that user.
// What its Run creates, that user creates.
func TrackAsApprover(ctx context.Context, conf *rest.Config, c client.Client, namespace string) (t *Tracker, err error) {
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
	// The API server knows the binding a moment later. The watch outlives the wait for it.
	err = Eventually(ctx, "the approver's rights", func(context.Context) (bool, error) {
		if t, err = TrackCalls(ctx, as, namespace); apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, err
	})
	return t, err
}

// AskForApproval creates a call, waits until it asks for an approval, and returns one for it. That has the call's name, by which a
// tracker knows whose end is waited for.
func AskForApproval(ctx context.Context, c client.Client, call *v1alpha1.ToolCall) (*v1alpha1.ToolCallApproval, error) {
	if err := Create(ctx, c, call); err != nil {
		return nil, err
	}
	err := Eventually(ctx, "call "+call.Name+" to ask for approval", func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(call), call); err != nil {
			return false, err
		}
		if call.Status.Phase.Terminal() {
			return false, fmt.Errorf("it ended %s/%s: %s", call.Status.Phase, call.Status.Reason, call.Status.Message)
		}
		return call.AwaitsApproval(), nil
	})
	if err != nil {
		return nil, err
	}
	return approvalOf(call), nil
}

func approvalOf(call *v1alpha1.ToolCall) *v1alpha1.ToolCallApproval {
	return &v1alpha1.ToolCallApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: call.Namespace, Name: call.Name},
		Spec: v1alpha1.ToolCallApprovalSpec{
			CallRef: v1alpha1.CallReference{Name: call.Name, UID: string(call.UID)},
			Digest:  call.Status.Approval.Digest, Decision: v1alpha1.DecisionApprove,
		},
	}
}
