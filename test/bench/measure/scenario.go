// Package measure is how the benchmark's commands measure and report. A Scenario is one thing that is measured: what it
// needs, an operation whose time counts, and what has to happen before the next one. Scenarios run in turns, round after
// round, so that whatever else the machine does hits all alike. A Report has every figure as a row of one table. The
// package knows nothing of a cluster.
package measure

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Scenario is one thing that is measured.
type Scenario struct {
	// Name is what the report calls it.
	Name string
	// Against are the names of scenarios of the same part that it is compared with.
	Against []string
	// Each is how often it has its turn in a round; once if it is 0.
	Each int
	// Calls is how many calls one operation has. Where there are more than one, their rate is reported, not the time.
	Calls int
	// Prepare makes what the scenario needs, before the first round.
	Prepare func(ctx context.Context) error
	// Operate is measured. It gets the number of the operation, from 0 on.
	Operate func(ctx context.Context, n int) error
	// Spent, if there is one, is what has been used so far. What is used during an operation is reported for each call, and
	// so is what is used within the time Settle after it: what follows from the operation.
	Spent  func() (Counts, error)
	Settle time.Duration
	// Rest is waited before each operation, so that nothing that made room for it goes on while it is measured.
	Rest time.Duration
	// Clear makes room for the next operation. Nothing of it is measured.
	Clear func(ctx context.Context) error
}

// Counts are what only grows, by unit.
type Counts map[string]float64

// Add adds what has grown between two looks.
func (c Counts) Add(before, after Counts) {
	for unit, n := range after {
		c[unit] += n - before[unit]
	}
}

// measured is what came of a scenario.
type measured struct {
	*Scenario
	operations int
	values     []float64
	spent      Counts
}

// InTurns measures scenarios, which take turns, and adds their rows to a part of the report. What was measured before a
// failure is reported too.
func (r *Report) InTurns(ctx context.Context, part string, rounds int, scenarios ...*Scenario) error {
	var all []*measured
	turns := 1
	for _, s := range scenarios {
		all = append(all, &measured{Scenario: s, spent: Counts{}})
		turns = max(turns, s.Each)
	}
	err := inTurns(ctx, rounds, turns, all)
	for _, m := range all {
		m.report(r, part)
	}
	return err
}

func inTurns(ctx context.Context, rounds, turns int, all []*measured) error {
	for _, m := range all {
		if err := optional(m.Prepare)(ctx); err != nil {
			return fmt.Errorf("prepare %s: %w", m.Name, err)
		}
	}
	for turn := range rounds * turns {
		for _, m := range all {
			if turn%turns >= max(1, m.Each) {
				continue
			}
			if err := m.operate(ctx); err != nil {
				return fmt.Errorf("%s, operation %d: %w", m.Name, m.operations, err)
			}
		}
	}
	return nil
}

// operate measures one operation.
func (m *measured) operate(ctx context.Context) error {
	if err := Pause(ctx, m.Rest); err != nil {
		return err
	}
	before, err := m.look()
	if err != nil {
		return err
	}
	n := m.operations
	m.operations++
	began := time.Now()
	if err := m.Operate(ctx, n); err != nil {
		return err
	}
	seconds := time.Since(began).Seconds()
	if err := Pause(ctx, m.Settle); err != nil {
		return err
	}
	after, err := m.look()
	if err != nil {
		return err
	}
	m.values = append(m.values, seconds)
	m.spent.Add(before, after)
	return optional(m.Clear)(ctx)
}

func (m *measured) look() (Counts, error) {
	if m.Spent == nil {
		return nil, nil
	}
	return m.Spent()
}

func (m *measured) report(r *Report, part string) {
	if len(m.values) == 0 {
		return
	}
	if m.Calls > 1 {
		rates := make([]float64, len(m.values))
		for i, seconds := range m.values {
			rates[i] = float64(m.Calls) / seconds
		}
		r.Add(part, m.Name, "calls/s", rates, m.Against...)
	} else {
		r.Add(part, m.Name, "s", m.values, m.Against...)
	}
	for _, unit := range slices.Sorted(maps.Keys(m.spent)) {
		if each := m.spent[unit] / float64(len(m.values)*max(1, m.Calls)); each > 0 {
			r.Add(part, m.Name, unit+"/call", []float64{each}, m.Against...)
		}
	}
}

// Pause waits for a time that is part of a measurement.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func optional(do func(context.Context) error) func(context.Context) error {
	if do == nil {
		return func(context.Context) error { return nil }
	}
	return do
}
