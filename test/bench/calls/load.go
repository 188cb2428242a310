package calls

import (
	"context"
	"fmt"
	"time"

	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/measure"
)

const (
	// warmPerRound is how many warm calls a round has: they end at once.
	warmPerRound = 5
	// ratePool is how many pods wait for warm calls that come by the clock, and rateSeconds how long each rate is kept.
	ratePool    = 20
	rateSeconds = 10
	// rateLimit is the p99, in seconds, up to which a rate counts as held.
	rateLimit = 1.0
)

// measureRounds measures one object at a time.
func (p *part) measureRounds(ctx context.Context) error {
	return p.inTurns(ctx, p.scenario(barePod, 1), p.scenario(bareJob, 1), p.scenario(coldCall, 1, bareJob.title, barePod.title),
		p.scenario(imageCall, 1, bareJob.title, barePod.title), p.scenario(warmCall, warmPerRound, bareJob.title, barePod.title))
}

// measureHeld measures warm calls with and without a list that the kernel holds their programs to.
func (p *part) measureHeld(ctx context.Context) error {
	return p.inTurns(ctx, p.scenario(warmCall, warmPerRound), p.scenario(heldCall, warmPerRound, warmCall.title))
}

// measureBursts creates as many as a burst has at once and waits for all, kind after kind. A node has no room for the pods
// of all kinds at the same time.
func (p *part) measureBursts(ctx context.Context) error {
	for _, size := range []int{10, 50} {
		for _, k := range []kind{barePod, bareJob, coldCall, imageCall, warmCall} {
			var o *producer
			of := func(k kind) string { return fmt.Sprintf("%d at once, until all have ended: %s", size, k.title) }
			burst := &measure.Scenario{
				Name: of(k), Against: []string{of(bareJob)},
				Prepare: func(ctx context.Context) (err error) {
					o, err = p.newProducer(ctx, k, size)
					return err
				},
				Operate: func(ctx context.Context, _ int) error {
					return cluster.Spread(ctx, size, size, func(ctx context.Context, i int) error {
						return o.run(ctx, fmt.Sprintf("burst-%04d", i))
					})
				},
			}
			err := p.report.InTurns(ctx, p.name, 1, burst)
			p.addWarmShare(of(k), o)
			if err = p.end(ctx, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// measureRates doubles the rate of calls that come by the clock until they don't keep up with it, cold and warm.
func (p *part) measureRates(ctx context.Context) error {
	for _, k := range []kind{coldCall, warmCall} {
		o, err := p.newProducer(ctx, k, ratePool)
		if err != nil {
			return err
		}
		held, holding := 0.0, true
		for rate := 1.0; holding; rate *= 2 {
			plan := arrivals(rate, rateSeconds)
			seconds, err := o.arrive(ctx, plan, fmt.Sprintf("rate-%g", rate))
			if err != nil {
				return fmt.Errorf("%s, %g a second: %w", k.title, rate, err)
			}
			p.report.Add(p.name, fmt.Sprintf("%s, %g a second", k.title, rate), "s", seconds)
			if holding = holds(rate, seconds, plan); holding {
				held = rate
			}
		}
		p.report.Add(p.name, k.title+", sustained", "calls/s", []float64{held})
		p.addWarmShare(k.title, o)
		if err := p.end(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// arrive creates objects by the clock, whether or not earlier ones have ended, and waits for all. A time counts from when
// its object was planned: what delays the creation is part of it.
func (o *producer) arrive(ctx context.Context, plan []time.Duration, name string) ([]float64, error) {
	seconds, began := make([]float64, len(plan)), time.Now()
	err := cluster.Spread(ctx, len(plan), len(plan), func(ctx context.Context, i int) error {
		planned := began.Add(plan[i])
		if err := measure.Pause(ctx, time.Until(planned)); err != nil {
			return err
		}
		err := o.run(ctx, fmt.Sprintf("%s-%04d", name, i))
		seconds[i] = time.Since(planned).Seconds()
		return err
	})
	if err != nil {
		return nil, err
	}
	return seconds, o.clear(ctx)
}

// arrivals are evenly spaced, the first at once.
func arrivals(rate, seconds float64) []time.Duration {
	plan := make([]time.Duration, max(1, int(rate*seconds)))
	for i := range plan {
		plan[i] = time.Duration(float64(i) / rate * float64(time.Second))
	}
	return plan
}

// holds says whether a rate was held: p99 within the limit, and no more left behind when the last one came than can be on
// their way.
func holds(rate float64, seconds []float64, plan []time.Duration) bool {
	behind, last := 0, len(plan)-1
	for i, took := range seconds[:last] {
		if plan[i].Seconds()+took > plan[last].Seconds() {
			behind++
		}
	}
	return measure.Summarize(seconds).P99 <= rateLimit && behind <= max(1, int(rate*rateLimit))
}
