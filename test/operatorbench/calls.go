package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/internal/follow"
)

// patience bounds the wait for one call.
const patience = 2 * time.Minute

const environmentName = "bench"

// makeSpace creates a namespace with an environment whose calls anybody may make.
func (b *bench) makeSpace(ctx context.Context, namespace string, pool int) error {
	environment := &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: environmentName},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "example.com/tools:1", PolicyRef: &v1alpha1.PolicyReference{Name: namespace}},
	}
	if pool > 0 {
		environment.Spec.WarmPool = &v1alpha1.WarmPool{Size: int32(pool)}
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		environment,
	} {
		if err := b.server.client.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return b.eventually(ctx, "the environment in "+namespace+" to be ready and its pool full", func(ctx context.Context) (bool, error) {
		err := b.server.client.Get(ctx, client.ObjectKeyFromObject(environment), environment)
		full := pool == 0 || environment.Status.Warm != nil && int(environment.Status.Warm.Ready) == pool
		return full && meta.IsStatusConditionTrue(environment.Status.Conditions, v1alpha1.ConditionReady), err
	})
}

func (b *bench) eventually(ctx context.Context, what string, there func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		ok, err := there(ctx)
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w\n%s", what, ctx.Err(), b.manager.tail())
		case <-time.After(readyPoll):
		}
	}
}

func newCall(namespace, name string) *v1alpha1.ToolCall {
	return &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ToolCallSpec{
			Structured:     &v1alpha1.StructuredAction{Binary: "true"},
			EnvironmentRef: &v1alpha1.LocalReference{Name: environmentName},
		},
	}
}

// ends tells who waits for a call that it has ended.
type ends struct {
	mu   sync.Mutex
	wait map[string]chan *v1alpha1.ToolCall
}

func (e *ends) expect(name string) chan *v1alpha1.ToolCall {
	e.mu.Lock()
	defer e.mu.Unlock()
	ended := make(chan *v1alpha1.ToolCall, 1)
	e.wait[name] = ended
	return ended
}

func (e *ends) take(event watch.Event) {
	call, ok := event.Object.(*v1alpha1.ToolCall)
	if !ok || !meta.IsStatusConditionTrue(call.Status.Conditions, v1alpha1.ConditionFinished) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if ended := e.wait[call.Name]; ended != nil {
		ended <- call
		delete(e.wait, call.Name)
	}
}

// outcome is what a number of calls came to.
type outcome struct {
	latencies []float64
	warm      int
	took      time.Duration
}

// runCalls has so many calls in flight until all have ended: the next one is created when one ends.
func (b *bench) runCalls(ctx context.Context, namespace, prefix string, calls, inFlight int) (*outcome, error) {
	finished := &ends{wait: map[string]chan *v1alpha1.ToolCall{}}
	f, err := follow.Start(ctx, b.server.client, &v1alpha1.ToolCallList{}, namespace, finished.take)
	if err != nil {
		return nil, err
	}
	defer f.Stop()
	o := &outcome{latencies: make([]float64, calls)}
	var next, warm atomic.Int64
	failures := make([]error, inFlight)
	began := time.Now()
	var workers sync.WaitGroup
	for i := range inFlight {
		workers.Go(func() {
			for n := next.Add(1); n <= int64(calls) && failures[i] == nil && ctx.Err() == nil; n = next.Add(1) {
				var path v1alpha1.Path
				o.latencies[n-1], path, failures[i] = b.runCall(ctx, finished, namespace, fmt.Sprintf("%s-%06d", prefix, n))
				if path == v1alpha1.PathWarm {
					warm.Add(1)
				}
			}
		})
	}
	workers.Wait()
	o.took, o.warm = time.Since(began), int(warm.Load())
	for _, err := range append(failures, f.Err()) {
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, b.manager.tail())
		}
	}
	return o, ctx.Err()
}

func (b *bench) runCall(ctx context.Context, finished *ends, namespace, name string) (float64, v1alpha1.Path, error) {
	ended := finished.expect(name)
	began := time.Now()
	if err := b.server.client.Create(ctx, newCall(namespace, name)); err != nil {
		return 0, "", fmt.Errorf("create call %s: %w", name, err)
	}
	select {
	case call := <-ended:
		took := time.Since(began).Seconds()
		if call.Status.Phase != v1alpha1.PhaseSucceeded || call.Status.Timings == nil {
			return 0, "", fmt.Errorf("call %s ended %s/%s: %s", name, call.Status.Phase, call.Status.Reason, call.Status.Message)
		}
		return took, call.Status.Timings.Path, nil
	case <-ctx.Done():
		return 0, "", ctx.Err()
	case <-time.After(patience):
		return 0, "", fmt.Errorf("call %s has not ended after %s", name, patience)
	}
}
