package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// sample is one measured object.
type sample struct {
	Kind    string    `json:"kind"`
	Round   int       `json:"round"`
	Created time.Time `json:"created"`
	// Seconds from just before the create request to the end seen on the watch.
	Seconds float64 `json:"seconds"`
	// StartSeconds is, of a call, from just before the create request to the start of its process.
	StartSeconds float64 `json:"startSeconds,omitempty"`
	// ResultSeconds is, of a call, from the end of its process to condition Finished seen on the watch.
	ResultSeconds float64 `json:"resultSeconds,omitempty"`
}

// measureAll runs the rounds, one object at a time.
func measureAll(ctx context.Context, o *options, b *bed, r *report, progress io.Writer) error {
	subjects, err := b.subjects()
	if err != nil {
		return err
	}
	line := newProgressLine(progress)
	defer line.end()
	for round := 1; round <= o.rounds; round++ {
		for _, s := range subjects {
			line.show(round, o.rounds, s.kind, r.Samples)
			one, err := b.measure(ctx, s, round)
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", round, s.kind, err)
			}
			r.Samples = append(r.Samples, one)
			if err := b.settle(ctx, s, round); err != nil {
				return fmt.Errorf("after round %d, %s: %w", round, s.kind, err)
			}
		}
	}
	return nil
}

func objectName(kind string, round int) string {
	return map[string]string{kindPod: "pod", kindJob: "job", kindCall: "call"}[kind] + fmt.Sprintf("-%04d", round)
}

// measure creates one object and waits for its end. The watch is open before the object is there.
func (b *bed) measure(ctx context.Context, s subject, round int) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	object := s.make(objectName(s.kind, round))
	watcher, err := b.client.Watch(ctx, s.list(), client.InNamespace(b.namespace), client.MatchingFieldsSelector{
		Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, object.GetName()),
	})
	if err != nil {
		return sample{}, fmt.Errorf("open the watch: %w", err)
	}
	defer watcher.Stop()
	one := sample{Kind: s.kind, Round: round, Created: time.Now()}
	if err := b.client.Create(ctx, object); err != nil {
		return sample{}, fmt.Errorf("create: %w", err)
	}
	ended, seen, err := awaitEnd(ctx, watcher, s.done)
	if err != nil {
		return sample{}, err
	}
	one.Seconds = seen.Sub(one.Created).Seconds()
	if call, ok := ended.(*v1alpha1.ToolCall); ok {
		one.StartSeconds = call.Status.StartTime.Sub(one.Created).Seconds()
		one.ResultSeconds = seen.Sub(call.Status.CompletionTime.Time).Seconds()
	}
	return one, nil
}

// awaitEnd reads the watch until done says so, and gives the object and when it was seen.
func awaitEnd(ctx context.Context, watcher watch.Interface, done func(client.Object) (bool, error)) (client.Object, time.Time, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, time.Time{}, fmt.Errorf("wait for the end: %w", ctx.Err())
		case event, ok := <-watcher.ResultChan():
			seen := time.Now()
			object, isObject := event.Object.(client.Object)
			if !ok || !isObject || event.Type == watch.Deleted {
				return nil, time.Time{}, fmt.Errorf("the watch broke before the end was seen (%s)", event.Type)
			}
			ended, err := done(object)
			if ended || err != nil {
				return object, seen, err
			}
		}
	}
}

// settle lets the sample end by itself, deletes it, and waits until nothing of it is left. None of it is
// measured.
func (b *bed) settle(ctx context.Context, s subject, round int) error {
	if s.kind == kindCall {
		if err := b.eventually(ctx, "the call's Job to be complete", b.jobsDone); err != nil {
			return err
		}
	}
	object := s.make(objectName(s.kind, round))
	if err := b.client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return b.eventually(ctx, "its pod to be gone", b.noPods)
}

func (b *bed) jobsDone(ctx context.Context) (bool, error) {
	jobs := &batchv1.JobList{}
	if err := b.client.List(ctx, jobs, client.InNamespace(b.namespace)); err != nil {
		return false, err
	}
	for i := range jobs.Items {
		if done, err := jobDone(&jobs.Items[i]); !done || err != nil {
			return false, err
		}
	}
	return true, nil
}

// parallelResult is what many calls at the same time came to.
type parallelResult struct {
	Calls          int     `json:"calls"`
	Seconds        float64 `json:"seconds"`
	CallsPerSecond float64 `json:"callsPerSecond"`
	Each           summary `json:"each"`
}

// measureParallel creates calls all at once and waits for all of them.
func measureParallel(ctx context.Context, o *options, b *bed, r *report, progress io.Writer) error {
	if o.parallel == 0 {
		return nil
	}
	fmt.Fprintf(progress, "bench: %d calls at the same time\n", o.parallel)
	subjects, err := b.subjects()
	if err != nil {
		return err
	}
	calls := subjects[len(subjects)-1]
	samples, failures := make([]sample, o.parallel), make([]error, o.parallel)
	started := time.Now()
	var running sync.WaitGroup
	for i := range o.parallel {
		running.Go(func() { samples[i], failures[i] = b.measure(ctx, calls, o.rounds+1+i) })
	}
	running.Wait()
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("calls at the same time: %w", err)
	}
	took := time.Since(started).Seconds()
	each := summarize(samples, kindCall, total)
	r.Parallel = &parallelResult{Calls: o.parallel, Seconds: took, CallsPerSecond: float64(o.parallel) / took, Each: each}
	return nil
}
