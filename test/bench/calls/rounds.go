package calls

import (
	"context"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/figures"
	"toolcall.dev/operator/test/internal/follow"
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
func (r *run) measureRounds(ctx context.Context) error {
	for _, kind := range []string{kindWarm, kindHeld} {
		if warm := r.fixture(kind); warm != nil {
			r.say("filling the pool of the %ss", titles[kind])
			if err := warm.resize(ctx, r.pool); err != nil {
				return err
			}
		}
	}
	began := time.Now()
	for round := 1; round <= r.rounds; round++ {
		for _, f := range r.fixtures {
			if err := r.observe(ctx, f.kind, func() error { return r.round(ctx, f, round) }); err != nil {
				return fmt.Errorf("round %d, %s: %w", round, f.kind, err)
			}
		}
		r.sayRound(round)
	}
	var err error
	r.report.Writes, err = r.writeReports(began)
	return err
}

func (r *run) sayRound(round int) {
	text := fmt.Sprintf("round %d of %d, %.0f s", round, r.rounds, time.Since(r.report.Time).Seconds())
	for _, f := range r.fixtures {
		text += fmt.Sprintf(", %s p50 %.3f s", f.kind, figures.Summarize(totals(r.report.Samples, f.kind)).P50)
	}
	r.say("%s", text)
}

// repeats says how many samples of a kind a round has: those that end at once can be had by the dozen.
func (c *Command) repeats(kind string) int {
	if kind == kindWarm || kind == kindHeld || kind == kindFloor {
		return c.warmPerRound
	}
	return 1
}

func (r *run) round(ctx context.Context, f *fixture, round int) error {
	for i := range r.repeats(f.kind) {
		one, err := r.measureOne(ctx, f, fmt.Sprintf("%s-%05d-%03d", strings.ToLower(f.kind), round, i))
		if err != nil {
			return err
		}
		one.Round = round
		r.report.Samples = append(r.report.Samples, one)
		if err := f.clear(ctx); err != nil {
			return err
		}
	}
	return nil
}

// measureOne creates one object and waits for its end; of a call it notes the stages, where they are asked for.
func (r *run) measureOne(ctx context.Context, f *fixture, name string) (sample, error) {
	var m marks
	t, err := cluster.Track(ctx, r.client, f.Subject, m.see)
	if err != nil {
		return sample{}, err
	}
	defer t.Stop()
	if r.stages && (f.kind == kindCold || f.kind == kindImage) {
		for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.PodList{}} {
			follower, err := follow.Start(ctx, r.client, list, f.Namespace, func(event watch.Event) {
				if object, ok := event.Object.(client.Object); ok {
					m.see(object, time.Now())
				}
			})
			if err != nil {
				return sample{}, err
			}
			defer follower.Stop()
		}
	}
	measured, err := t.Measure(ctx, name)
	if err != nil {
		return sample{}, err
	}
	one, err := newSample(f.kind, measured, measured.Created)
	if r.stages && f.environment != nil {
		one.Stages = m.offsets(measured)
	}
	return one, err
}

// newSample counts the time of an object from when it was to be created.
func newSample(kind string, measured *cluster.Sample, planned time.Time) (sample, error) {
	s := sample{Kind: kind, Created: planned, Seconds: measured.Ended.Sub(planned).Seconds(), Path: measured.Path()}
	if kind == kindCold && s.Path == v1alpha1.PathWarm {
		return s, fmt.Errorf("%s was to run cold, and took a waiting pod", measured.Object.GetName())
	}
	return s, nil
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
