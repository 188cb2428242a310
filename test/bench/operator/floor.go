package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/figures"
	"toolcall.dev/operator/test/bench/standalone"
)

const (
	floorNamespace = "bench-floor"
	// floorAtOnce is how many calls are on their way at the same time, where it is more than one.
	floorAtOnce = 32
	// floorBlocks is how often each variant has its turn with as many at once.
	floorBlocks = 5
	// floorPause lets the API server come to rest after a deletion of many.
	floorPause = 200 * time.Millisecond
)

// floor measures what the API server takes for a call that costs as little as any can: somebody creates it, another
// client that sees it writes its status once, and that is seen. There is no operator. The variants of the kind take
// turns, so that whatever else the machine does hits all alike.
func (b *bench) floor(ctx context.Context) (err error) {
	if err := cluster.Create(ctx, b.client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: floorNamespace}}); err != nil {
		return err
	}
	variants, err := b.newVariants(ctx)
	if err != nil {
		return err
	}
	for _, v := range variants {
		stop, failure := v.Start(ctx, floorNamespace)
		if failure != nil {
			return failure
		}
		defer func() { err = errors.Join(err, stop()) }()
		// The first calls find the API server's caches empty.
		if _, err := runCalls(ctx, v.Tracker, "warm-up", 2*floorAtOnce, floorAtOnce); err != nil {
			return err
		}
	}
	alone, atOnce := max(1, b.calls/10), max(1, b.calls/floorBlocks)
	b.say("floor: %d calls of each of %d variants one at a time, %d with %d at once", alone, len(variants), floorBlocks*atOnce, floorAtOnce)
	if err := measureAlone(ctx, variants, alone); err != nil {
		return err
	}
	if err := measureAtOnce(ctx, variants, atOnce); err != nil {
		return err
	}
	for _, v := range variants {
		b.report.Floor = append(b.report.Floor, v.result())
		if err := errors.Join(v.clear(ctx), v.Uninstall(ctx, b.client)); err != nil {
			return err
		}
	}
	return nil
}

// measureAlone has the variants take turns call by call.
func measureAlone(ctx context.Context, variants []*variant, calls int) error {
	for _, v := range variants {
		if err := v.clear(ctx); err != nil {
			return err
		}
	}
	for i := range calls {
		for _, v := range variants {
			s, err := v.Tracker.Measure(ctx, fmt.Sprintf("alone-%06d", i))
			if err != nil {
				return err
			}
			v.alone = append(v.alone, s.Seconds())
		}
	}
	return nil
}

// measureAtOnce has the variants take turns block by block, there and back, so that none always follows the same one.
func measureAtOnce(ctx context.Context, variants []*variant, calls int) error {
	variants = slices.Clone(variants)
	for block := range floorBlocks {
		for _, v := range variants {
			if err := v.clear(ctx); err != nil {
				return err
			}
			used, _, err := standalone.During(func() error {
				done, err := runCalls(ctx, v.Tracker, fmt.Sprintf("block-%d", block), calls, floorAtOnce)
				if err == nil {
					v.atOnce, v.took = append(v.atOnce, done.latencies...), v.took+done.took
				}
				return err
			})
			if err != nil {
				return err
			}
			v.used.Add(used)
		}
		slices.Reverse(variants)
	}
	return nil
}

// clear deletes what was measured.
func (v *variant) clear(ctx context.Context) error {
	if err := v.Clear(ctx, floorNamespace); err != nil {
		return err
	}
	return cluster.Pause(ctx, floorPause)
}

func (v *variant) result() *floorResult {
	return &floorResult{
		Variant: v.Title, Rules: v.Rules, Alone: figures.Summarize(v.alone), AtOnce: floorAtOnce,
		CallsPerSecond: float64(len(v.atOnce)) / v.took.Seconds(), Latency: figures.Summarize(v.atOnce),
		CPU: v.used.MillisecondsPerCall(len(v.atOnce)),
	}
}
