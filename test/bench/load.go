package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/internal/figures"
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
func measureBursts(ctx context.Context, o *options, b *bed, r *report, progress io.Writer) error {
	for _, size := range o.bursts {
		for _, s := range b.subjects {
			if !slices.Contains(podKinds, s.kind) {
				continue
			}
			fmt.Fprintf(progress, "bench: %s, %d at the same time\n", titles[s.kind], size)
			if err := b.ready(ctx, s, size); err != nil {
				return err
			}
			plan := make([]time.Duration, size)
			samples, _, err := b.arrive(ctx, s, fmt.Sprintf("burst-%d", size), plan)
			if err != nil {
				return fmt.Errorf("%s, %d at the same time: %w", s.kind, size, err)
			}
			each := figures.Summarize(totals(samples, s.kind))
			r.Bursts = append(r.Bursts, burst{Size: size, Kind: s.kind, Seconds: each.Max, Each: each, WarmShare: warmShare(samples)})
			if err := s.place.clear(ctx, s.make("")); err != nil {
				return err
			}
		}
	}
	return b.release(ctx)
}

// ready fills the pool where there is one.
func (b *bed) ready(ctx context.Context, s subject, size int) error {
	if s.kind != kindWarm || s.place.pool == size {
		return nil
	}
	return s.place.resize(ctx, size)
}

// release lets the waiting pods go.
func (b *bed) release(ctx context.Context) error {
	if warm := b.places[kindWarm]; warm != nil && warm.pool > 0 {
		return warm.resize(ctx, 0)
	}
	return nil
}

// measureRates raises the rate until calls don't keep up with it, cold and warm.
func measureRates(ctx context.Context, o *options, b *bed, r *report, progress io.Writer) error {
	for _, s := range b.subjects {
		if s.kind != kindCold && s.kind != kindWarm {
			continue
		}
		for _, rate := range o.rates {
			fmt.Fprintf(progress, "bench: %s, %g a second for %g s\n", titles[s.kind], rate, o.rateSeconds)
			if err := b.ready(ctx, s, o.ratePool); err != nil {
				return err
			}
			samples, behind, err := b.arrive(ctx, s, fmt.Sprintf("rate-%g", rate), arrivals(rate, o.rateSeconds))
			if err != nil {
				return fmt.Errorf("%s, %g a second: %w", s.kind, rate, err)
			}
			held := judge(s.kind, rate, samples, behind)
			r.Rates = append(r.Rates, held)
			if err := s.place.clear(ctx, s.make("")); err != nil {
				return err
			}
			if !held.Holds {
				break
			}
		}
	}
	return b.release(ctx)
}

// arrivals are evenly spaced, the first at once.
func arrivals(rate, seconds float64) []time.Duration {
	plan := make([]time.Duration, max(1, int(rate*seconds)))
	for i := range plan {
		plan[i] = time.Duration(float64(i) / rate * float64(time.Second))
	}
	return plan
}

// judge says whether a rate was held: p99 within the limit, and no more left behind than can be on their way.
func judge(kind string, rate float64, samples []sample, behind int) rateResult {
	each := figures.Summarize(totals(samples, kind))
	onTheWay := max(1, int(rate*rateLimit))
	return rateResult{
		Kind: kind, Rate: rate, Each: each, WarmShare: warmShare(samples),
		Behind: behind, Holds: each.P99 <= rateLimit && behind <= onTheWay,
	}
}

// arrive creates objects by the clock, whether or not earlier ones have ended, and waits for all. A time counts
// from when its object was planned: what delays the creation is part of it. behind is how many had not ended when
// the last one came.
func (b *bed) arrive(ctx context.Context, s subject, name string, plan []time.Duration) (samples []sample, behind int, err error) {
	t, err := b.track(ctx, s)
	if err != nil {
		return nil, 0, err
	}
	defer t.stop()
	names, runs := make([]string, len(plan)), make([]*watched, len(plan))
	for i := range plan {
		names[i] = fmt.Sprintf("%s-%04d", name, i)
		runs[i] = t.expect(names[i])
	}
	samples, failures := make([]sample, len(plan)), make([]error, len(plan))
	began := time.Now()
	var running sync.WaitGroup
	for i, at := range plan {
		running.Go(func() {
			time.Sleep(time.Until(began.Add(at)))
			samples[i], _, failures[i] = b.runOne(ctx, s, names[i], runs[i], began.Add(at))
		})
	}
	time.Sleep(time.Until(began.Add(plan[len(plan)-1])))
	for _, r := range runs[:len(runs)-1] {
		select {
		case <-r.ended:
		default:
			behind++
		}
	}
	running.Wait()
	return samples, behind, errors.Join(failures...)
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
