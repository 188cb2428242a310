package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/figures"
	"toolcall.dev/operator/test/bench/standalone"
)

const (
	// settleTime is what the operator may take after the last call's end for what follows from it.
	settleTime = 3 * time.Second
	// profileSeconds is how long the CPU profile of a part is, and profileDelay after how long it begins.
	profileSeconds = 15
	profileDelay   = 5 * time.Second
)

// throughput runs the calls of one part and adds what they cost.
func (b *bench) throughput(ctx context.Context, name string, pool int) (err error) {
	if err := b.ensureManager(ctx); err != nil {
		return err
	}
	b.say("%s: %d calls, %d in flight", name, b.calls, b.inFlight)
	namespace := "bench-" + name
	n, err := startNode(ctx, b.client, namespace)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	if err := b.makeSpace(ctx, namespace, pool); err != nil {
		return err
	}
	p, err := b.measurePart(ctx, name, namespace)
	if err != nil {
		return err
	}
	b.report.Parts = append(b.report.Parts, p)
	b.say("%s: %.1f calls/s, p50 %.3f s, %.2f ms CPU and %.2f writes of the operator per call",
		name, p.CallsPerSecond, p.Latency.P50, p.CPU[standalone.Operator], p.Writes.Total())
	return b.emptyPool(ctx, namespace)
}

func (b *bench) measurePart(ctx context.Context, name, namespace string) (*part, error) {
	before, err := b.process.Memory(ctx)
	if err != nil {
		return nil, err
	}
	since, profiled := time.Now(), b.profileLater(ctx, name)
	var done *outcome
	used, _, err := standalone.During(func() (err error) {
		if done, err = b.runIn(ctx, namespace, "call", b.calls, b.inFlight); err != nil {
			return err
		}
		return cluster.Pause(ctx, settleTime)
	})
	if err != nil {
		return nil, err
	}
	after, err := b.process.Memory(ctx)
	if err != nil {
		return nil, err
	}
	writes, err := b.server.Writes(namespace, since)
	if err != nil {
		return nil, err
	}
	p := newPart(name, done, used)
	p.Writes, p.Before, p.After = writes.PerCall(float64(p.Calls)), &before, &after
	return p, profiled()
}

func newPart(name string, done *outcome, used standalone.CPU) *part {
	calls := len(done.latencies)
	return &part{
		Part: name, Calls: calls, CallsPerSecond: float64(calls) / done.took.Seconds(),
		Latency: figures.Summarize(done.latencies), WarmShare: float64(done.warm) / float64(calls),
		CPU: used.MillisecondsPerCall(calls),
	}
}

// profileLater takes CPU profiles, of the operator and of the API server, once the part is under way; wait for them.
func (b *bench) profileLater(ctx context.Context, name string) (wait func() error) {
	var profiles errgroup.Group
	for suffix, profile := range map[string]func(ctx context.Context, folder, name, profile string) error{
		"": b.process.Profile, "-apiserver": b.server.Profile,
	} {
		profiles.Go(func() error {
			if b.profiles == "" || cluster.Pause(ctx, profileDelay) != nil {
				return nil
			}
			return profile(ctx, b.profiles, "cpu-"+name+suffix, fmt.Sprintf("profile?seconds=%d", profileSeconds))
		})
	}
	return profiles.Wait
}

// emptyPool lets the waiting pods of a part go.
func (b *bench) emptyPool(ctx context.Context, namespace string) error {
	if err := cluster.SetPool(ctx, b.client, namespace, 0); err != nil {
		return err
	}
	if err := cluster.AwaitEnvironment(ctx, b.client, namespace, 0); err != nil {
		return err
	}
	return cluster.Pause(ctx, settleTime)
}
