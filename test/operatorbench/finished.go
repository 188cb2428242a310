package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/internal/figures"
)

const (
	finishedNamespace = "bench-finished"
	probeNamespace    = "bench-probe"
	// probesInFlight is low: it is latency that is looked at.
	probesInFlight = 10
	// writers create the finished calls.
	writers = 32
	// dayInSeconds keeps finished calls for longer than a run takes.
	dayInSeconds = 24 * 3600
)

// rememberFinished compares an operator that has just been started with one that was started on a cluster with many
// finished calls: memory, and how new calls fare.
func (b *bench) rememberFinished(ctx context.Context) error {
	n := newNode(b.server, probeNamespace)
	stop, err := n.start(ctx)
	if err != nil {
		return err
	}
	if err := b.makeSpace(ctx, probeNamespace, probesInFlight); err != nil {
		return errors.Join(err, stop())
	}
	result, err := b.compareFinished(ctx)
	b.report.Finished = result
	return errors.Join(err, n.failure(), stop())
}

func (b *bench) compareFinished(ctx context.Context) (*finishedResult, error) {
	before, err := b.lookAround(ctx, "before")
	if err != nil {
		return nil, err
	}
	if err := b.stopManager(); err != nil {
		return nil, err
	}
	if before.Bare, err = b.writeProbes(ctx, "before"); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := b.createFinished(ctx); err != nil {
		return nil, err
	}
	b.say("finished: created in %.0f s", time.Since(began).Seconds())
	bare, err := b.writeProbes(ctx, "after")
	if err != nil {
		return nil, err
	}
	began = time.Now()
	if err := b.startManager(ctx); err != nil {
		return nil, err
	}
	ready := time.Since(began).Seconds()
	if err := b.awaitLearned(ctx); err != nil {
		return nil, err
	}
	learned := time.Since(began).Seconds()
	after, err := b.lookAround(ctx, "after")
	if err != nil {
		return nil, err
	}
	after.Bare = bare
	return &finishedResult{Calls: b.options.finished, OutputBytes: b.options.outputBytes, Before: *before, After: *after, ReadySeconds: ready, LearnedSeconds: learned}, nil
}

// lookAround restarts the operator, runs some calls, leaves it alone for a while, and looks at it.
func (b *bench) lookAround(ctx context.Context, when string) (*look, error) {
	b.say("finished: %d new calls %s", b.options.probes, when)
	if when == "before" {
		if err := errors.Join(b.stopManager(), b.startManager(ctx)); err != nil {
			return nil, err
		}
	}
	if err := b.poolFull(ctx); err != nil {
		return nil, err
	}
	used, err := processTimes()
	if err != nil {
		return nil, err
	}
	profiled := b.profileLater(ctx, "finished-"+when)
	done, err := b.runCalls(ctx, probeNamespace, when, b.options.probes, probesInFlight)
	usedThen, timesErr := processTimes()
	// A profile may take longer than the calls.
	if err := errors.Join(err, timesErr, <-profiled); err != nil {
		return nil, err
	}
	if err := b.pause(ctx, b.options.idle); err != nil {
		return nil, err
	}
	if err := b.manager.profile(b.options.profiles, "heap-"+when, "heap?gc=1"); err != nil {
		return nil, err
	}
	m, err := b.manager.memory()
	probes := float64(b.options.probes)
	return &look{
		Memory: m, Latency: figures.Summarize(done.latencies), WarmShare: float64(done.warm) / probes,
		CPU: cpuPerCall(used, usedThen, probes),
	}, err
}

// writeProbes makes the writes of as many calls while no operator is there: what the API server itself takes.
func (b *bench) writeProbes(ctx context.Context, when string) (figures.Summary, error) {
	b.say("finished: the writes of %d calls %s, without an operator", b.options.probes, when)
	p, err := b.patternOf(ctx, probeNamespace)
	if err != nil {
		return figures.Summary{}, err
	}
	done, err := b.writeAll(ctx, p, bareNamespace+"-"+when, b.options.probes, probesInFlight)
	if err != nil {
		return figures.Summary{}, err
	}
	return figures.Summarize(done.latencies), nil
}

// poolFull waits until the runners are back with an operator that was restarted.
func (b *bench) poolFull(ctx context.Context) error {
	env := &v1alpha1.ExecutionEnvironment{}
	key := client.ObjectKey{Namespace: probeNamespace, Name: environmentName}
	return b.eventually(ctx, "the pool to be full again", func(ctx context.Context) (bool, error) {
		err := b.server.client.Get(ctx, key, env)
		return err == nil && env.Status.Warm != nil && int(env.Status.Warm.Ready) == probesInFlight, err
	})
}

// awaitLearned waits until the operator knows which calls ended before it began: it asks for them when it is ready, and
// works meanwhile.
func (b *bench) awaitLearned(ctx context.Context) error {
	return b.eventually(ctx, "the operator to know which calls have ended", func(context.Context) (bool, error) {
		said, err := os.ReadFile(b.manager.log.Name())
		return err == nil && bytes.Contains(said[b.manager.logged:], []byte("Know which calls ended before")), err
	})
}

// createFinished writes calls that have ended, while no operator is there that would run them.
func (b *bench) createFinished(ctx context.Context) error {
	b.say("finished: creating %d finished calls of %d bytes of output", b.options.finished, b.options.outputBytes)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: finishedNamespace}}
	if err := b.server.client.Create(ctx, namespace); err != nil {
		return fmt.Errorf("create namespace %s: %w", finishedNamespace, err)
	}
	var next atomic.Int64
	failures := make([]error, writers)
	var writing sync.WaitGroup
	for i := range writers {
		writing.Go(func() {
			for n := next.Add(1); n <= int64(b.options.finished) && failures[i] == nil; n = next.Add(1) {
				failures[i] = b.createOneFinished(ctx, fmt.Sprintf("finished-%06d", n))
			}
		})
	}
	writing.Wait()
	return errors.Join(failures...)
}

func (b *bench) createOneFinished(ctx context.Context, name string) error {
	call := newCall(finishedNamespace, name)
	call.Spec.TTLSecondsAfterFinished = ptr.To(int32(dayInSeconds))
	if err := b.server.client.Create(ctx, call); err != nil {
		return fmt.Errorf("create finished call %s: %w", name, err)
	}
	before := call.DeepCopy()
	call.Status = finishedStatus(name, b.options.outputBytes)
	if err := b.server.client.Status().Patch(ctx, call, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write the status of finished call %s: %w", name, err)
	}
	return nil
}

// finishedStatus is what the operator leaves of a call that ended well.
func finishedStatus(name string, outputBytes int) v1alpha1.ToolCallStatus {
	now := metav1.NowMicro()
	text := strings.Repeat("A line of output that fills the space.\n", outputBytes/39+1)[:outputBytes]
	digest := strings.Repeat("0", 64)
	var conditions []metav1.Condition
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionStarted, v1alpha1.ConditionFinished, v1alpha1.ConditionSucceeded} {
		conditions = append(conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCompleted, Message: "It ran", LastTransitionTime: metav1.Now()})
	}
	return v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhaseSucceeded, Reason: v1alpha1.ReasonCompleted, Message: "The command ended with exit code 0",
		Conditions: conditions, ExitCode: ptr.To(int32(0)), Stdout: text, Output: text + "\nTook 0.1s",
		StartTime: &now, CompletionTime: &now, DurationMilliseconds: ptr.To(int64(100)),
		Streams: &v1alpha1.StreamsStatus{
			Stdout: v1alpha1.StreamStatus{Bytes: int64(outputBytes), SHA256: digest}, Stderr: v1alpha1.StreamStatus{SHA256: digest},
		},
		Timings:     &v1alpha1.CallTimings{AcceptedMilliseconds: ptr.To(int64(1)), StartedMilliseconds: ptr.To(int64(5)), FinishedMilliseconds: ptr.To(int64(110)), Path: v1alpha1.PathWarm},
		Environment: &v1alpha1.ResolvedEnvironment{Name: environmentName, WorkingDir: "/workspace"},
		Job:         "tc-" + name, Pod: "tc-" + name + "-abcde", Node: nodeName,
		Runner: &v1alpha1.RunnerBinding{PodUID: "00000000-0000-0000-0000-000000000000", KeyHash: digest}, ObservedGeneration: 1,
	}
}
