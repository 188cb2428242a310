package calls

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/measure"
)

// approvedCall is a warm call that a person has to approve.
var approvedCall = kind{
	title: "approve to result", room: "approve", list: &v1alpha1.ToolCallList{}, done: cluster.CallDone, warm: true,
	policy: v1alpha1.ExecutionPolicySpec{Approvals: []v1alpha1.ApprovalRequirement{{Name: "all"}}},
}

// approver is somebody else than who creates the calls, and approves them one at a time.
type approver struct {
	// The producer's tracker creates what the approver approves, and sees the ends of the calls.
	*producer
	// asked is how many calls were created, approval is for the last of them, which waits for it.
	asked    int
	approval *v1alpha1.ToolCallApproval
}

// newApprover makes the room and who approves there, and has the first call wait.
func (p *part) newApprover(ctx context.Context) (*approver, error) {
	o, err := p.newProducer(ctx, approvedCall, scenarioPool)
	if err != nil {
		return nil, err
	}
	if o.tracker, err = p.trackAsApprover(ctx, o.namespace); err != nil {
		return nil, err
	}
	a := &approver{producer: o}
	return a, a.ask(ctx)
}

// trackAsApprover lets a user approve the calls of a namespace, and opens a watch as that user until the part's end.
func (p *part) trackAsApprover(ctx context.Context, namespace string) (t *cluster.Tracker, err error) {
	conf := rest.CopyConfig(p.conf)
	conf.Impersonate = rest.ImpersonationConfig{UserName: namespace + "-approver"}
	as, err := cluster.Connect(conf)
	if err != nil {
		return nil, err
	}
	err = cluster.Create(ctx, p.client, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "approver"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "toolcall-approver"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: conf.Impersonate.UserName}},
	})
	if err != nil {
		return nil, err
	}
	// The API server knows the binding a moment later. The watch outlives the wait for it.
	err = cluster.Eventually(ctx, "the approver's rights", func(context.Context) (bool, error) {
		if t, err = cluster.TrackCalls(ctx, as, namespace); apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, err
	}
	p.stops = append(p.stops, func() error {
		t.Stop()
		return nil
	})
	return t, nil
}

// ask has the next call wait for approval. It has no pod meanwhile: the pool stays full.
func (a *approver) ask(ctx context.Context) error {
	call := cluster.NewCall(a.namespace, fmt.Sprintf("one-%06d", a.asked))
	a.asked++
	if err := cluster.Create(ctx, a.client, call); err != nil {
		return err
	}
	err := cluster.Eventually(ctx, "call "+call.Name+" to ask for approval", func(ctx context.Context) (bool, error) {
		if err := a.client.Get(ctx, client.ObjectKeyFromObject(call), call); err != nil {
			return false, err
		}
		if call.Status.Phase.Terminal() {
			return false, fmt.Errorf("it ended %s/%s: %s", call.Status.Phase, call.Status.Reason, call.Status.Message)
		}
		return call.AwaitsApproval(), nil
	})
	if err != nil {
		return err
	}
	a.approval = approvalOf(call)
	return nil
}

// approvalOf approves a call that waits for it. It has the call's name, by which the tracker knows whose end is waited for.
func approvalOf(call *v1alpha1.ToolCall) *v1alpha1.ToolCallApproval {
	return &v1alpha1.ToolCallApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: call.Namespace, Name: call.Name},
		Spec: v1alpha1.ToolCallApprovalSpec{
			CallRef: v1alpha1.CallReference{Name: call.Name, UID: string(call.UID)},
			Digest:  call.Status.Approval.Digest, Decision: v1alpha1.DecisionApprove,
		},
	}
}

// measureApprovals measures warm calls that wait for approval, from the approval on, in turns with those that need none.
func (p *part) measureApprovals(ctx context.Context) error {
	var a *approver
	err := p.inTurns(ctx, p.scenario(warmCall, warmPerRound), &measure.Scenario{
		Name: approvedCall.title, Against: []string{warmCall.title}, Each: warmPerRound,
		Prepare: func(ctx context.Context) (err error) {
			a, err = p.newApprover(ctx)
			return err
		},
		Operate: func(ctx context.Context, _ int) error { return a.runBy(ctx, a.approval) },
		Clear: func(ctx context.Context) error {
			if err := a.clear(ctx); err != nil {
				return err
			}
			return a.ask(ctx)
		},
	})
	if a != nil {
		p.addWarmShare(approvedCall.title, a.producer)
	}
	return err
}
