package calls

import (
	"context"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/measure"
)

// approvedCall is a warm call that a person has to approve.
var approvedCall = kind{
	title: "approve to result", room: "approve", list: &v1alpha1.ToolCallList{}, done: cluster.CallDone, warm: true,
	policy: v1alpha1.ExecutionPolicySpec{Approvals: []v1alpha1.ApprovalRequirement{{Name: "all"}}},
}

// measureApprovals measures warm calls that wait for approval, from the approval on, in turns with those that need none.
func (p *part) measureApprovals(ctx context.Context) error {
	var o *producer
	var a *cluster.Approver
	warm, approved := p.scenario(warmCall, warmPerRound), &measure.Scenario{
		Name: approvedCall.title, Against: []string{warmCall.title}, Each: warmPerRound,
		Prepare: func(ctx context.Context) (err error) {
			if o, err = p.newProducer(ctx, approvedCall, scenarioPool); err != nil {
				return err
			}
			if a, err = cluster.NewApprover(ctx, p.conf, p.client, o.namespace); err != nil {
				return err
			}
			p.stops = append(p.stops, a.Stop)
			return a.Ask(ctx)
		},
		Operate: func(ctx context.Context, _ int) error { return o.count(a.Approve(ctx)) },
		Clear: func(ctx context.Context) error {
			if err := o.clear(ctx); err != nil {
				return err
			}
			return a.Ask(ctx)
		},
	}
	// People take longer than what asking them, and starting another pod, leave to do.
	warm.Rest, approved.Rest = time.Second, time.Second
	err := p.inTurns(ctx, warm, approved)
	p.addWarmShare(approvedCall.title, o)
	return err
}
