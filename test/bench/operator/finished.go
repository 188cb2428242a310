package operator

import (
	"context"
	"errors"
	"time"

	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/figures"
	"toolcall.dev/operator/test/bench/standalone"
)

const (
	finishedNamespace = "bench-finished"
	probeNamespace    = "bench-probe"
	// probesInFlight is low: it is latency that is looked at.
	probesInFlight = 10
)

// rememberFinished compares an operator that has just been started with one that was started on a cluster with many
// finished calls: memory, and how new calls fare.
func (b *bench) rememberFinished(ctx context.Context) (err error) {
	if err := b.ensureManager(ctx); err != nil {
		return err
	}
	n, err := startNode(ctx, b.client, probeNamespace)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	if err := b.makeSpace(ctx, probeNamespace, probesInFlight); err != nil {
		return err
	}
	f := &finishedResult{Calls: b.finished, OutputBytes: b.outputBytes}
	if err := b.compareFinished(ctx, f); err != nil {
		return err
	}
	b.report.Finished = f
	return nil
}

func (b *bench) compareFinished(ctx context.Context, f *finishedResult) error {
	if err := errors.Join(b.stopManager(), b.ensureManager(ctx)); err != nil {
		return err
	}
	if err := b.look(ctx, "before", &f.Before); err != nil {
		return err
	}
	if err := b.stopManager(); err != nil {
		return err
	}
	if err := b.writeProbes(ctx, "before", &f.Before); err != nil {
		return err
	}
	b.say("finished: creating %d finished calls with %d bytes of command and of output", b.finished, b.outputBytes)
	began := time.Now()
	if err := b.server.CreateFinished(ctx, finishedNamespace, 0, b.finished, b.outputBytes); err != nil {
		return err
	}
	b.say("finished: created in %.0f s", time.Since(began).Seconds())
	if err := b.writeProbes(ctx, "after", &f.After); err != nil {
		return err
	}
	if err := b.ensureManager(ctx); err != nil {
		return err
	}
	learned, err := b.process.AwaitLearned(ctx)
	if err != nil {
		return err
	}
	f.ReadySeconds, f.LearnedSeconds = b.process.Ready.Seconds(), learned.Seconds()
	return b.look(ctx, "after", &f.After)
}

// look runs some calls, leaves the operator alone for a while, and looks at it.
func (b *bench) look(ctx context.Context, when string, l *look) error {
	b.say("finished: %d new calls %s", b.probes, when)
	if err := cluster.AwaitEnvironment(ctx, b.client, probeNamespace, probesInFlight); err != nil {
		return err
	}
	profiled := b.profileLater(ctx, "finished-"+when)
	var done *outcome
	used, _, err := standalone.During(func() (err error) {
		done, err = b.runIn(ctx, probeNamespace, when, b.probes, probesInFlight)
		return err
	})
	if err != nil {
		return err
	}
	// A profile may take longer than the calls.
	if err := errors.Join(profiled(), cluster.Pause(ctx, b.idle)); err != nil {
		return err
	}
	if err := b.process.Profile(ctx, b.profiles, "heap-"+when, "heap?gc=1"); err != nil {
		return err
	}
	l.Latency, l.WarmShare = figures.Summarize(done.latencies), float64(done.warm)/float64(b.probes)
	l.CPU = used.MillisecondsPerCall(b.probes)
	l.Memory, err = b.process.Memory(ctx)
	return err
}

// writeProbes makes the writes of as many calls while no operator is there: what the API server itself takes.
func (b *bench) writeProbes(ctx context.Context, when string, l *look) error {
	b.say("finished: the writes of %d calls %s, without an operator", b.probes, when)
	p, err := b.patternOf(ctx, probeNamespace)
	if err != nil {
		return err
	}
	done, err := b.writeAll(ctx, p, bareNamespace+"-"+when, b.probes, probesInFlight)
	if err != nil {
		return err
	}
	l.Bare = figures.Summarize(done.latencies)
	return nil
}
