package main

import (
	"context"
	"fmt"

	"toolcall.dev/operator/test/internal/figures"
)

// auditCounter counts in the API server's audit log what the operator wrote in the namespaces of the benchmark:
// exact, whatever else runs on the cluster.
type auditCounter struct{ log figures.AuditLog }

func (c *auditCounter) begin(context.Context) error       { return nil }
func (c *auditCounter) end(context.Context, string) error { return nil }

func (c *auditCounter) report(_ context.Context, samples []sample) (map[string]*writeReport, error) {
	groups, err := c.log.Count()
	if err != nil {
		return nil, err
	}
	reports := map[string]*writeReport{}
	for kind, calls := range countCalls(samples) {
		writes := groups[kind]
		if writes == nil {
			return nil, fmt.Errorf("count the operator's writes: %s has none by %s for kind %s", c.log.File, c.log.User, kind)
		}
		r := &writeReport{
			Source: "audit log", Calls: float64(calls), PerCall: map[string]float64{}, Refused: float64(writes.Refused),
			Note: "in the kind's own namespace; access reviews, which store nothing, are not among them",
		}
		for name, n := range writes.ByName {
			r.PerCall[name] = float64(n) / float64(calls)
		}
		reports[kind] = r
	}
	return reports, nil
}
