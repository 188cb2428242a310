package operator

import (
	"context"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/measure"
)

// measureApprovals measures warm calls from their approval on, in turns with warm calls that need none.
func (b *bench) measureApprovals(ctx context.Context) error {
	const warm = "warm calls"
	var scenarios []*measure.Scenario
	for _, o := range b.builds() {
		plain, err := b.newOperatorSite(ctx, o, 0)
		if err != nil {
			return err
		}
		approved, err := b.newOperatorSite(ctx, o, 0)
		if err != nil {
			return err
		}
		scenarios = append(scenarios, b.alone(plain.newPodCaller(warm, finishedPool)), b.approvals(approved, warm))
	}
	for _, s := range scenarios {
		// What follows from a call, or from asking for an approval, isn't measured with the next one.
		s.Rest = settleTime / 10
	}
	return b.report.InTurns(ctx, b.part, rounds, scenarios...)
}

// approvals is a scenario of calls that wait for an approval already, one at a time. Somebody else than their creator approves them.
func (b *bench) approvals(s *site, against string) *measure.Scenario {
	s.policy.Approvals = []v1alpha1.ApprovalRequirement{{Name: "all"}}
	c := s.newPodCaller("approve to result", finishedPool, against)
	var a *cluster.Approver
	serve := c.prepare
	c.prepare = func(ctx context.Context) (err error) {
		if err := serve(ctx); err != nil {
			return err
		}
		if a, err = cluster.NewApprover(ctx, s.Conf, s.Client, namespace); err != nil {
			return err
		}
		s.stops = append(s.stops, a.Stop)
		return a.Ask(ctx)
	}
	c.run = func(ctx context.Context, _ string) error {
		_, err := a.Approve(ctx)
		return err
	}
	one := b.alone(c)
	one.Clear = func(ctx context.Context) error { return a.Ask(ctx) }
	return one
}
