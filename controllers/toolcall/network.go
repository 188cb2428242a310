package toolcall

import (
	"context"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/clusternet"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/result"
)

// Cluster knows the addresses of the cluster.
type Cluster interface {
	Facts(ctx context.Context) (*clusternet.Facts, error)
}

// unknownClusterError says why the addresses of the cluster aren't known.
type unknownClusterError struct{ error }

// assignment is what a call's runner is told: the decision with the call's own input, and for a restricted network the
// addresses of the cluster. While these can't be had, the call waits, for as long as it may wait for its start.
func (r *Reconciler) assignment(ctx context.Context, d *decide.Decision, whole *v1alpha1.ToolCall) (*wire.Assignment, error) {
	a, err := d.Assignment(whole)
	if err != nil || a.Network == nil || r.Cluster == nil {
		return a, err
	}
	facts, err := r.Cluster.Facts(ctx)
	if err != nil {
		return nil, &unknownClusterError{err}
	}
	around := &a.Network.Rules.Surroundings
	around.APIServer, around.Domain, around.Services, around.Pods = facts.APIServer, facts.Domain, facts.Services, facts.Pods
	a.Network.Nameservers, a.Network.Search = facts.Nameservers, jobspec.SearchList(whole.Namespace, facts.Domain, facts.Search)
	return a, nil
}

// setNetwork writes what the call had of the network, and what was refused to it.
func setNetwork(s *v1alpha1.ToolCallStatus, decision *decide.Decision, outcome *result.Outcome) {
	if decision == nil || !outcome.Started {
		return
	}
	if decision.DenyNetwork || outcome.Isolation != nil && outcome.Isolation.Network == result.NetworkNone {
		s.Network = &v1alpha1.NetworkStatus{Mode: v1alpha1.NetworkNone}
		return
	}
	rules := decision.Network
	if rules == nil {
		// A file action has no network either, and no such isolation.
		if outcome.Isolation != nil && outcome.Isolation.Network == result.NetworkPod {
			s.Network = &v1alpha1.NetworkStatus{Mode: v1alpha1.NetworkUnrestricted}
		}
		return
	}
	s.Network = &v1alpha1.NetworkStatus{Mode: v1alpha1.NetworkMode(rules.Mode), Allowed: decide.ReachableHosts(rules), OmittedDenied: outcome.MoreDenied}
	for _, d := range outcome.Denied {
		s.Network.Denied = append(s.Network.Denied, v1alpha1.DeniedHost{
			Host: bounds.Text(d.Host, v1alpha1.MaxDeniedHostBytes), Port: int32(d.Port), Count: d.Count,
		})
	}
}
