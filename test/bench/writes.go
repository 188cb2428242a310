package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"toolcall.dev/operator/test/internal/figures"
)

// writeReport is what the calls of one kind cost the operator in API writes.
type writeReport struct {
	// Source says where the figures are from.
	Source string `json:"source"`
	// Calls that the figures are of.
	Calls float64 `json:"calls"`
	// PerCall is writes per call, by verb and resource, or by method where only that is known.
	PerCall map[string]float64 `json:"perCall"`
	// Refused are writes that the API server didn't take (conflicts, already there), all calls together.
	Refused float64 `json:"refused"`
	// Note says what else may be in the figures.
	Note string `json:"note,omitempty"`
}

func (w *writeReport) total() float64 {
	sum := 0.0
	for _, n := range w.PerCall {
		sum += n
	}
	return sum
}

func (w *writeReport) names() []string { return slices.Sorted(maps.Keys(w.PerCall)) }

// writeCounter counts what the operator writes for the samples of the rounds.
type writeCounter interface {
	// begin and end are called around each sample, with all that follows from it: the refill of a pool too.
	begin(ctx context.Context) error
	end(ctx context.Context, kind string) error
	// report gives the writes per sample, by kind of call.
	report(ctx context.Context, samples []sample) (map[string]*writeReport, error)
}

func newWriteCounter(ctx context.Context, o *options, b *bed) (writeCounter, error) {
	if o.auditLog == "" {
		c := &metricsCounter{clients: b.clients, namespace: o.operatorNS, name: o.operatorSA, sums: map[string]*clientMetrics{}}
		return c, c.begin(ctx)
	}
	c := &auditCounter{figures.AuditLog{File: o.auditLog, User: o.operatorUser(), Since: time.Now(), Groups: map[string]string{}}}
	for _, kind := range callKinds {
		if p := b.places[kind]; p != nil {
			c.log.Groups[p.namespace] = kind
		}
	}
	return c, nil
}

// countCalls says how many samples each kind of call has.
func countCalls(samples []sample) map[string]int {
	calls := map[string]int{}
	for _, s := range samples {
		if slices.Contains(callKinds, s.Kind) {
			calls[s.Kind]++
		}
	}
	return calls
}
