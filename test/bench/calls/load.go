package calls

import (
	"context"
	"fmt"
	"slices"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/figures"
)

// burst is what many objects at the same time came to.
type burst struct {
	Size int    `json:"size"`
	Kind string `json:"kind"`
	// Seconds until the last one's end was seen.
	Seconds float64         `json:"seconds"`
	Each    figures.Summary `json:"each"`
	// WarmShare is the part of the calls that had a waiting pod.
	WarmShare float64 `json:"warmShare"`
}

// rateResult is what objects that came by the clock came to.
type rateResult struct {
	Kind      string          `json:"kind"`
	Rate      float64         `json:"rate"`
	Each      figures.Summary `json:"each"`
	WarmShare float64         `json:"warmShare"`
	// Behind is how many had come and not ended when the last one came.
	Behind int  `json:"behind"`
	Holds  bool `json:"holds"`
}

// rateLimit is the p99, in seconds, up to which a rate counts as held.
const rateLimit = 1.0

// measureBursts creates as many as a burst has at once and waits for all, kind after kind.
func (r *run) measureBursts(ctx context.Context) error {
	for _, size := range r.bursts {
		for _, f := range r.fixtures {
			if !slices.Contains(podKinds, f.kind) {
				continue
			}
			r.say("%s, %d at the same time", titles[f.kind], size)
			samples, err := r.load(ctx, f, size, fmt.Sprintf("burst-%d", size), make([]time.Duration, size))
			if err != nil {
				return fmt.Errorf("%s, %d at the same time: %w", f.kind, size, err)
			}
			each := figures.Summarize(totals(samples, f.kind))
			r.report.Bursts = append(r.report.Bursts, burst{Size: size, Kind: f.kind, Seconds: each.Max, Each: each, WarmShare: warmShare(samples)})
		}
	}
	return r.release(ctx)
}

// measureRates raises the rate until calls don't keep up with it, cold and warm.
func (r *run) measureRates(ctx context.Context) error {
	for _, f := range r.fixtures {
		if f.kind != kindCold && f.kind != kindWarm {
			continue
		}
		for _, rate := range slices.Sorted(slices.Values(r.rates)) {
			r.say("%s, %g a second for %g s", titles[f.kind], rate, r.rateSeconds)
			samples, err := r.load(ctx, f, r.ratePool, fmt.Sprintf("rate-%g", rate), arrivals(rate, r.rateSeconds))
			if err != nil {
				return fmt.Errorf("%s, %g a second: %w", f.kind, rate, err)
			}
			held := judge(f.kind, rate, samples)
			r.report.Rates = append(r.report.Rates, held)
			if !held.Holds {
				break
			}
		}
	}
	return r.release(ctx)
}

// release lets the waiting pods go.
func (r *run) release(ctx context.Context) error {
	for _, kind := range []string{kindWarm, kindHeld} {
		if warm := r.fixture(kind); warm != nil && warm.pool > 0 {
			if err := warm.resize(ctx, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// load creates objects by the clock, whether or not earlier ones have ended, waits for all, and deletes them. A time
// counts from when its object was planned: what delays the creation is part of it. Where there is a pool, it has that
// many pods.
func (r *run) load(ctx context.Context, f *fixture, pool int, name string, plan []time.Duration) ([]sample, error) {
	if (f.kind == kindWarm || f.kind == kindHeld) && f.pool != pool {
		if err := f.resize(ctx, pool); err != nil {
			return nil, err
		}
	}
	t, err := cluster.Track(ctx, r.client, f.Subject, nil)
	if err != nil {
		return nil, err
	}
	defer t.Stop()
	samples := make([]sample, len(plan))
	began := time.Now()
	err = cluster.Spread(ctx, len(plan), len(plan), func(ctx context.Context, i int) error {
		planned := began.Add(plan[i])
		if err := cluster.Pause(ctx, time.Until(planned)); err != nil {
			return err
		}
		measured, err := t.Measure(ctx, fmt.Sprintf("%s-%04d", name, i))
		if err == nil {
			samples[i], err = newSample(f.kind, measured, planned)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return samples, f.clear(ctx)
}

// arrivals are evenly spaced, the first at once.
func arrivals(rate, seconds float64) []time.Duration {
	plan := make([]time.Duration, max(1, int(rate*seconds)))
	for i := range plan {
		plan[i] = time.Duration(float64(i) / rate * float64(time.Second))
	}
	return plan
}

// judge says whether a rate was held: p99 within the limit, and no more left behind than can be on their way. samples
// are in the order in which they came.
func judge(kind string, rate float64, samples []sample) rateResult {
	x := rateResult{Kind: kind, Rate: rate, Each: figures.Summarize(totals(samples, kind)), WarmShare: warmShare(samples)}
	last := samples[len(samples)-1].Created
	for _, s := range samples[:len(samples)-1] {
		if s.Created.Add(time.Duration(s.Seconds * float64(time.Second))).After(last) {
			x.Behind++
		}
	}
	onTheWay := max(1, int(rate*rateLimit))
	x.Holds = x.Each.P99 <= rateLimit && x.Behind <= onTheWay
	return x
}

func warmShare(samples []sample) float64 {
	warm := 0
	for _, s := range samples {
		if s.Path == v1alpha1.PathWarm {
			warm++
		}
	}
	return float64(warm) / float64(max(len(samples), 1))
}
