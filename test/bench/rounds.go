package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// sample is one measured object.
type sample struct {
	Kind    string    `json:"kind"`
	Round   int       `json:"round"`
	Created time.Time `json:"created"`
	// Seconds from just before the create request, or from when it was planned, to the end seen on the watch.
	Seconds float64 `json:"seconds"`
	// Path is, of a call, whether it had a waiting pod.
	Path v1alpha1.Path `json:"path,omitempty"`
	// Stages are seconds from just before the create request.
	Stages map[string]float64 `json:"stages,omitempty"`
}

// measureRounds measures one object at a time, round after round.
func measureRounds(ctx context.Context, o *options, b *bed, r *report, progress io.Writer) error {
	if warm := b.places[kindWarm]; warm != nil {
		fmt.Fprintln(progress, "bench: filling the pool")
		if err := warm.resize(ctx, o.pool); err != nil {
			return err
		}
	}
	writes, err := newWriteCounter(ctx, o, b)
	if err != nil {
		return err
	}
	line := newProgressLine(progress)
	defer line.end()
	for round := 1; round <= o.rounds; round++ {
		for _, s := range b.subjects {
			line.show(round, o.rounds, s.kind, r.Samples)
			if err := b.round(ctx, o, s, round, writes, r); err != nil {
				return fmt.Errorf("round %d, %s: %w", round, s.kind, err)
			}
		}
	}
	r.Writes, err = writes.report(ctx, r.Samples)
	return err
}

// repeats says how many samples of a kind a round has: those that end at once can be had by the dozen.
func (o *options) repeats(kind string) int {
	if kind == kindWarm || kind == kindFloor {
		return o.warmPerRound
	}
	return 1
}

func (b *bed) round(ctx context.Context, o *options, s subject, round int, writes writeCounter, r *report) error {
	for i := range o.repeats(s.kind) {
		if err := writes.begin(ctx); err != nil {
			return err
		}
		one, err := b.measure(ctx, s, fmt.Sprintf("%s-%05d-%03d", strings.ToLower(s.kind), round, i), o.stages)
		if err != nil {
			return err
		}
		one.Round = round
		r.Samples = append(r.Samples, one)
		if err := s.place.clear(ctx, s.make("")); err != nil {
			return err
		}
		if err := writes.end(ctx, s.kind); err != nil {
			return err
		}
	}
	return nil
}

// measure creates one object and waits for its end.
func (b *bed) measure(ctx context.Context, s subject, name string, stages bool) (sample, error) {
	t, err := b.track(ctx, s)
	if err != nil {
		return sample{}, err
	}
	defer t.stop()
	running := t.expect(name)
	if stages && (s.kind == kindCold || s.kind == kindImage) {
		for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.PodList{}} {
			stop, err := b.witness(ctx, list, s.place.namespace, running.marks)
			if err != nil {
				return sample{}, err
			}
			defer stop()
		}
	}
	began := time.Now()
	one, returned, err := b.runOne(ctx, s, name, running, began)
	if _, ok := running.object.(*v1alpha1.ToolCall); err == nil && ok && stages {
		one.Stages = offsets(began, returned, running)
	}
	return one, err
}

// runOne creates the object that is expected and waits for its end. Its time counts from began.
func (b *bed) runOne(ctx context.Context, s subject, name string, running *watched, began time.Time) (sample, time.Time, error) {
	one := sample{Kind: s.kind, Created: began}
	if err := b.client.Create(ctx, s.make(name)); err != nil {
		return one, time.Time{}, fmt.Errorf("create %s: %w", name, err)
	}
	returned := time.Now()
	if err := running.await(ctx); err != nil {
		return one, returned, fmt.Errorf("%s: %w", name, err)
	}
	one.Seconds = running.seen.Sub(began).Seconds()
	if call, ok := running.object.(*v1alpha1.ToolCall); ok && call.Status.Timings != nil {
		one.Path = call.Status.Timings.Path
	}
	if s.kind == kindCold && one.Path == v1alpha1.PathWarm {
		return one, returned, fmt.Errorf("%s was to run cold, and took a waiting pod", name)
	}
	return one, returned, nil
}

// totals are the times of the samples of one kind.
func totals(samples []sample, kind string) []float64 {
	var values []float64
	for _, s := range samples {
		if s.Kind == kind {
			values = append(values, s.Seconds)
		}
	}
	return values
}
