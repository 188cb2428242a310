package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// writeReport is what the calls of the rounds cost the operator in API writes.
type writeReport struct {
	// Source says where the figures are from.
	Source string `json:"source"`
	// Calls that the figures are of.
	Calls float64 `json:"calls"`
	// PerCall is writes per call, by verb and resource, or by method where only that is known.
	PerCall map[string]float64 `json:"perCall"`
	// ReviewsPerCall are access reviews: asked by a create, but nothing is stored. In PerCall too where only
	// the method is known.
	ReviewsPerCall float64 `json:"reviewsPerCall"`
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

// writeCounter counts from its making on.
type writeCounter interface {
	count(ctx context.Context, calls int) (*writeReport, error)
}

func newWriteCounter(ctx context.Context, o *options, b *bed) (writeCounter, error) {
	if o.auditLog != "" {
		return &auditCounter{file: o.auditLog, namespace: b.namespace, user: o.operatorUser(), since: time.Now()}, nil
	}
	c := &metricsCounter{clients: b.clients, namespace: o.operatorNS, name: o.operatorSA}
	before, err := c.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("count the operator's writes: %w", err)
	}
	c.before = before
	return c, nil
}
