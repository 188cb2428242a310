package calls

import (
	"context"
	"fmt"
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
	if o.tracker, err = cluster.TrackAsApprover(ctx, p.conf, p.client, o.namespace); err != nil {
		return nil, err
	}
	p.stops = append(p.stops, func() error {
		o.tracker.Stop()
		return nil
	})
	a := &approver{producer: o}
	return a, a.ask(ctx)
}

// ask has the next call wait for approval. It has no pod meanwhile: the pool stays full.
func (a *approver) ask(ctx context.Context) (err error) {
	call := cluster.NewCall(a.namespace, fmt.Sprintf("one-%06d", a.asked))
	a.asked++
	a.approval, err = cluster.AskForApproval(ctx, a.client, call)
	return err
}

// measureApprovals measures warm calls that wait for approval, from the approval on, in turns with those that need none.
func (p *part) measureApprovals(ctx context.Context) error {
	var a *approver
	warm, approved := p.scenario(warmCall, warmPerRound), &measure.Scenario{
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
	}
	// People take longer than what asking them, and starting another pod, leave to do.
	warm.Rest, approved.Rest = time.Second, time.Second
	err := p.inTurns(ctx, warm, approved)
	if a != nil {
		p.addWarmShare(approvedCall.title, a.producer)
	}
	return err
}
