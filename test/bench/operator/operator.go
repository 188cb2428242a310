// Package operator measures the operator alone: its own program with its real rights against a real API server, and no
// node. What a Job controller, a kubelet and a runner would do is done here: each Job gets a pod, a runner connects
// with the Job's token and takes its call, reports a result at once and waits for the acknowledgement, and pod and Job
// end. So thousands of calls a minute go through the operator, and what they cost it in CPU, memory and API writes is
// not lost in the cost of containers. The floor is the API server's share, with no operator there.
package operator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/figures"
	"toolcall.dev/operator/test/bench/standalone"
)

// Parts of a run, in order.
const (
	partFloor    = "floor"
	partCold     = "cold"
	partBare     = "bare"
	partWarm     = "warm"
	partSession  = "session"
	partCrowd    = "crowd"
	partFinished = "finished"
)

// Command is the benchmark's command operator.
type Command struct {
	figures.Options
	manager     string
	qps         float64
	calls       int
	inFlight    int
	pool        int
	finished    int
	outputBytes int
	probes      int
	// idleSessions and waiting are of the part crowd.
	idleSessions, waiting int
	idle                  time.Duration
	profiles              string
	beside                string
	report                Report
}

// AddFlags adds the command's flags.
func (c *Command) AddFlags(fs *flag.FlagSet) *figures.Options {
	c.Options.AddFlags(fs, "bin/bench-operator.json", partFloor, partCold, partBare, partWarm, partSession, partCrowd, partFinished)
	c.calls, c.inFlight, c.pool, c.finished, c.outputBytes, c.probes = 10000, 100, 100, 50000, 4096, 2000
	many := figures.Between(1, 1000000)
	fs.StringVar(&c.manager, "manager", "bin/manager", "the operator's program")
	figures.Add(fs, &c.qps, "qps", figures.Between(0.0, 1000000), "the operator's --qps; 0 for what it has by default")
	figures.Add(fs, &c.calls, "calls", many, "calls of each of the parts floor, cold, bare and warm; of the floor as many at once, and a tenth one at a time")
	figures.Add(fs, &c.inFlight, "in-flight", figures.Between(1, 10000), "calls that are on their way at the same time in the parts cold, bare and warm")
	figures.Add(fs, &c.pool, "pool", figures.Between(1, 200), "waiting pods in the part warm")
	figures.Add(fs, &c.finished, "finished", many, "finished calls in the part finished")
	figures.Add(fs, &c.outputBytes, "output-bytes", figures.Between(0, 256<<10), "command and standard output of each finished call; its text for models holds the output again")
	figures.Add(fs, &c.probes, "probes", many, "new calls before and after, to see whether they got slower, ten at a time")
	c.idleSessions, c.waiting = 1000, 1500
	// A requester keeps no more calls pending, and a quarter of the operator's connections may come from one address.
	figures.Add(fs, &c.idleSessions, "idle-sessions", figures.Between(1, 2000), "sessions without calls in the part crowd")
	figures.Add(fs, &c.waiting, "waiting", figures.Between(1, 1900), "calls that wait in one session in the part crowd; a requester may have 2000")
	fs.DurationVar(&c.idle, "idle", time.Minute, "how long the operator is left alone before its memory is looked at")
	fs.StringVar(&c.profiles, "profiles", "", "folder for CPU profiles of the operator and of the API server, and the operator's heap profiles, for go tool pprof; empty for none")
	fs.StringVar(&c.beside, "beside", "", "folder of another checkout of the project, whose definition and admission policies of a call the floor measures in the same run; empty for none")
	return &c.Options
}

// Report is what Measure has measured.
func (c *Command) Report() figures.Report { return &c.report }

// bench is one run.
type bench struct {
	*Command
	server  *standalone.Server
	client  client.WithWatch
	process *standalone.Manager
	say     func(format string, args ...any)
}

// Measure runs the parts that were asked for.
func (c *Command) Measure(ctx context.Context, say func(format string, args ...any)) (err error) {
	if c.Has(partBare) && !c.Has(partCold) {
		return errors.New("-only has bare, which writes again what the part cold wrote: add cold")
	}
	say("starting etcd and the API server")
	server, err := standalone.StartServer(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	b := &bench{Command: c, server: server, client: server.Client, say: say}
	err = c.Options.Measure(ctx,
		figures.Part{Name: partFloor, Measure: b.floor},
		figures.Part{Name: partCold, Measure: func(ctx context.Context) error { return b.throughput(ctx, partCold, 0) }},
		figures.Part{Name: partBare, Measure: b.bareWrites},
		figures.Part{Name: partWarm, Measure: func(ctx context.Context) error { return b.throughput(ctx, partWarm, c.pool) }},
		figures.Part{Name: partSession, Measure: b.sessionCalls},
		figures.Part{Name: partCrowd, Measure: b.crowd},
		figures.Part{Name: partFinished, Measure: b.rememberFinished})
	return server.Explain(errors.Join(err, b.stopManager()))
}

func (b *bench) ensureManager(ctx context.Context) (err error) {
	if b.process != nil {
		return nil
	}
	var args []string
	if b.qps > 0 {
		args = append(args, fmt.Sprintf("--qps=%g", b.qps))
	}
	b.process, err = b.server.StartManager(ctx, b.manager, args...)
	return err
}

func (b *bench) stopManager() error {
	if b.process == nil {
		return nil
	}
	m := b.process
	b.process = nil
	return m.Stop()
}

// makeSpace creates a namespace with an environment whose calls anybody may make.
func (b *bench) makeSpace(ctx context.Context, namespace string, pool int) error {
	environment := cluster.NewEnvironment(namespace, namespace, "example.com/tools:1")
	if pool > 0 {
		environment.Spec.WarmPool = &v1alpha1.WarmPool{Size: int32(pool)}
	}
	err := cluster.Create(ctx, b.client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, environment)
	if err != nil {
		return err
	}
	return cluster.AwaitEnvironment(ctx, b.client, namespace, pool)
}

// outcome is what a number of calls came to.
type outcome struct {
	latencies []float64
	warm      int
	took      time.Duration
}

// runCalls has so many calls in flight until all have ended: the next one is created when one ends.
func runCalls(ctx context.Context, t *cluster.Tracker, prefix string, calls, inFlight int) (*outcome, error) {
	samples := make([]*cluster.Sample, calls)
	began := time.Now()
	err := cluster.Spread(ctx, calls, inFlight, func(ctx context.Context, i int) (err error) {
		samples[i], err = t.Measure(ctx, fmt.Sprintf("%s-%06d", prefix, i))
		return err
	})
	if err != nil {
		return nil, err
	}
	o := &outcome{took: time.Since(began)}
	for _, s := range samples {
		o.latencies = append(o.latencies, s.Seconds())
		if s.Path() == v1alpha1.PathWarm {
			o.warm++
		}
	}
	return o, nil
}

// runIn runs calls in a namespace with an environment.
func (b *bench) runIn(ctx context.Context, namespace, prefix string, calls, inFlight int) (*outcome, error) {
	t, err := cluster.Track(ctx, b.client, cluster.Calls(namespace), nil)
	if err != nil {
		return nil, err
	}
	defer t.Stop()
	return runCalls(ctx, t, prefix, calls, inFlight)
}
