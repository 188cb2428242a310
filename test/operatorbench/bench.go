package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/internal/figures"
)

// bench is one run.
type bench struct {
	options  *options
	server   *server
	manager  *manager
	progress io.Writer
	report   *report
}

// settleTime is what the operator may take after the last call's end for what follows from it.
const settleTime = 3 * time.Second

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "operatorbench: "+format+"\n", args...)
}

func (b *bench) startManager(ctx context.Context) (err error) {
	b.manager, err = b.server.start(ctx, b.options)
	return err
}

func (b *bench) stopManager() error {
	if b.manager == nil {
		return nil
	}
	m := b.manager
	b.manager = nil
	return m.stop()
}

func (b *bench) measure(ctx context.Context) error {
	if err := b.startManager(ctx); err != nil {
		return err
	}
	if err := b.awaitAdmission(ctx); err != nil {
		return err
	}
	if b.options.has(partCold) {
		if err := b.throughput(ctx, partCold, 0); err != nil {
			return err
		}
	}
	if b.options.has(partBare) {
		if err := b.bareWrites(ctx); err != nil {
			return err
		}
	}
	if b.options.has(partWarm) {
		if err := b.throughput(ctx, partWarm, b.options.pool); err != nil {
			return err
		}
	}
	if b.options.has(partFinished) {
		return b.rememberFinished(ctx)
	}
	return nil
}

// admissionAge is how old the admission policies must be before the operator believes what they stamped, and more.
const admissionAge = 5 * time.Second

// awaitAdmission waits until creators are stamped: without that, no call is believed.
func (b *bench) awaitAdmission(ctx context.Context) error {
	err := b.eventually(ctx, "the admission policies to be in force", func(ctx context.Context) (bool, error) {
		probe := newCall(operatorNamespace, "probe")
		err := b.server.client.Create(ctx, probe, client.DryRunAll)
		return err == nil && probe.Spec.RequestedBy != nil, nil
	})
	return errors.Join(err, b.pause(ctx, admissionAge))
}

// throughput runs the calls of one part and adds what they cost.
func (b *bench) throughput(ctx context.Context, part string, pool int) error {
	o := b.options
	b.say("%s: %d calls, %d in flight", part, o.calls, o.inFlight)
	namespace := "bench-" + part
	n := newNode(b.server, namespace)
	stop, err := n.start(ctx)
	if err != nil {
		return err
	}
	if err := b.makeSpace(ctx, namespace, pool); err != nil {
		return errors.Join(err, stop())
	}
	costs, err := b.watchCosts(namespace, part)
	if err != nil {
		return errors.Join(err, stop())
	}
	profiled := b.profileLater(ctx, part)
	done, err := b.runCalls(ctx, namespace, "call", o.calls, o.inFlight)
	if err != nil {
		return errors.Join(err, n.failure(), stop())
	}
	if err := b.pause(ctx, settleTime); err != nil {
		return errors.Join(err, stop())
	}
	t, err := costs(done)
	if err != nil {
		return errors.Join(err, stop())
	}
	b.report.Parts = append(b.report.Parts, t)
	b.say("%s: %.1f calls/s, p50 %.3f s, %.2f ms CPU and %.2f writes of the operator per call", part, t.CallsPerSecond, t.Latency.P50, t.CPU[processOperator], t.WritesPerCall)
	return errors.Join(<-profiled, b.drain(ctx, namespace, n), stop())
}

// watchCosts begins to count what the operator spends; the function that it returns ends that.
func (b *bench) watchCosts(namespace, part string) (func(*outcome) (*throughput, error), error) {
	log := figures.AuditLog{File: b.server.auditLog, User: operatorUser, Since: time.Now(), Groups: map[string]string{namespace: part}}
	before, err := b.manager.memory()
	if err != nil {
		return nil, err
	}
	timesBefore, err := processTimes()
	return func(done *outcome) (*throughput, error) {
		times, err := processTimes()
		if err != nil {
			return nil, err
		}
		after, err := b.manager.memory()
		if err != nil {
			return nil, err
		}
		counted, err := log.Count()
		if err != nil || counted[part] == nil {
			return nil, fmt.Errorf("the audit log has no write of the operator in %s: %w", namespace, err)
		}
		return newThroughput(part, done, cpuPerCall(timesBefore, times, float64(len(done.latencies))), counted[part], before, after), nil
	}, err
}

// profileSeconds is how long the CPU profile of a part is, and profileDelay after how long it begins.
const (
	profileSeconds = 15
	profileDelay   = 5 * time.Second
)

// profileLater takes CPU profiles, of the operator and of the API server, once the part is under way.
func (b *bench) profileLater(ctx context.Context, part string) <-chan error {
	done := make(chan error, 1)
	m := b.manager
	go func() {
		if b.options.profiles == "" || b.pause(ctx, profileDelay) != nil {
			done <- nil
			return
		}
		server := make(chan error, 1)
		go func() { server <- b.server.profile(ctx, b.options.profiles, "cpu-"+part+"-apiserver", profileSeconds) }()
		err := m.profile(b.options.profiles, "cpu-"+part, fmt.Sprintf("profile?seconds=%d", profileSeconds))
		done <- errors.Join(err, <-server)
	}()
	return done
}

func (b *bench) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// drain lets the waiting pods of a part go.
func (b *bench) drain(ctx context.Context, namespace string, n *node) error {
	key := types.NamespacedName{Namespace: namespace, Name: environmentName}
	env := &v1alpha1.ExecutionEnvironment{}
	if err := b.server.client.Get(ctx, key, env); err != nil || env.Spec.WarmPool == nil {
		return errors.Join(err, n.failure())
	}
	before := env.DeepCopy()
	env.Spec.WarmPool = nil
	if err := b.server.client.Patch(ctx, env, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("empty the pool: %w", err)
	}
	err := b.eventually(ctx, "the pool in "+namespace+" to be empty", func(ctx context.Context) (bool, error) {
		err := b.server.client.Get(ctx, key, env)
		return err == nil && env.Status.Warm == nil, err
	})
	return errors.Join(err, b.pause(ctx, settleTime), n.failure())
}
