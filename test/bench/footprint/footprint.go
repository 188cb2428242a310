// Package footprint measures what the operator and a runner cost when nothing happens. The operator's own program runs
// against an API server of its own, without a node: calls that have ended cost it what they cost whether or not a pod
// ran them. The runner's own program dials a listener of the operator's. Both have limits, far above what was measured,
// so that a leak fails.
package footprint

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/figures"
	"toolcall.dev/operator/test/bench/standalone"
)

// Parts of a run.
const (
	partOperator = "operator"
	partRunner   = "runner"
)

// The limits.
const (
	// mostMemory is what the operator may have resident with ten thousand finished calls in the cluster, in MiB; its
	// deployment's limit is 512.
	mostMemory = 128
	// slowestRunner, in seconds, and largestRunner, in MiB, are limits of the medians.
	slowestRunner = 0.25
	largestRunner = 64
)

// Command is the benchmark's command footprint.
type Command struct {
	figures.Options
	manager string
	runner  string
	counts  []int
	bytes   int
	rest    int
	samples int
	report  Report
}

// Report is the JSON file, and what the tables are made of.
type Report struct {
	figures.Run
	Operator []operatorCost `json:"operator,omitempty"`
	Runner   *runnerCost    `json:"runner,omitempty"`
}

// AddFlags adds the command's flags.
func (c *Command) AddFlags(fs *flag.FlagSet) *figures.Options {
	c.Options.AddFlags(fs, "bin/bench-footprint.json", partOperator, partRunner)
	c.counts, c.bytes, c.rest, c.samples = []int{0, 1000, 10000}, 4096, 30, 50
	fs.StringVar(&c.manager, "manager", "bin/manager", "the operator's program")
	fs.StringVar(&c.runner, "runner", "bin/runner", "the runner's program")
	figures.Add(fs, &c.counts, "finished", figures.List(figures.Between(0, 1000000)), "`numbers` of finished calls to look at the operator with, commas between")
	figures.Add(fs, &c.bytes, "output-bytes", figures.Between(0, 256<<10), "command and standard output of each of them")
	figures.Add(fs, &c.rest, "rest", figures.Between(1, 3600), "seconds for which the operator is watched at rest")
	figures.Add(fs, &c.samples, "samples", figures.Between(1, 10000), "starts of a runner")
	return &c.Options
}

// Report is what Measure has measured.
func (c *Command) Report() figures.Report { return &c.report }

// Measure runs the parts that were asked for.
func (c *Command) Measure(ctx context.Context, say func(format string, args ...any)) error {
	return c.Options.Measure(ctx,
		figures.Part{Name: partOperator, Measure: func(ctx context.Context) error { return c.measureOperator(ctx, say) }},
		figures.Part{Name: partRunner, Measure: func(ctx context.Context) (err error) {
			say("%d starts of a runner", c.samples)
			c.report.Runner, err = measureRunner(ctx, c.runner, c.samples)
			return err
		}})
}

// Verdict says which limits were passed.
func (c *Command) Verdict() error {
	var over []error
	limit := func(what string, value, limit float64) {
		if value > limit {
			over = append(over, fmt.Errorf("%s is %.3f; the limit is %g", what, value, limit))
		}
	}
	for _, o := range c.report.Operator {
		limit(fmt.Sprintf("the operator's resident memory, in MiB, with %d finished calls", o.Finished), o.Memory.RSS, mostMemory)
	}
	if r := c.report.Runner; r != nil {
		limit("the time in seconds from a runner's start to its hello", r.Hello.P50, slowestRunner)
		limit("a runner's resident memory, in MiB,", r.RSS.P50, largestRunner)
	}
	return errors.Join(over...)
}

// Tables are the figures as tables.
func (r *Report) Tables() []*figures.Table {
	operator := figures.NewTable("finished calls in the cluster|resident MiB|heap in use MiB|heap allocated MiB|processor at rest|ready after s|knows which calls ended after s")
	for _, o := range r.Operator {
		operator.Add("%d|%s|%.2f %%|%.1f|%.1f", o.Finished, o.Memory, 100*o.Load, o.ReadySeconds, o.LearnedSeconds)
	}
	runner := figures.NewTable("runner|samples|p50|p90|p99|largest")
	if c := r.Runner; c != nil {
		runner.Add("start of the process to its hello, ms|%d|%s|%.1f", c.Hello.Count, c.Hello.Cells(1000, 1), 1000*c.Hello.Max)
		runner.Add("resident while it waits, MiB|%d|%s|%.1f", c.RSS.Count, c.RSS.Cells(1, 1), c.RSS.Max)
	}
	return []*figures.Table{operator, runner}
}

// operatorCost is what one operator process takes at rest.
type operatorCost struct {
	Finished int               `json:"finishedCalls"`
	Memory   standalone.Memory `json:"memory"`
	// Load is the share of one processor.
	Load           float64 `json:"load"`
	ReadySeconds   float64 `json:"readySeconds"`
	LearnedSeconds float64 `json:"learnedSeconds"`
}

const finishedNamespace = "bench-finished"

// measureOperator looks at a new operator for each number of finished calls that the cluster remembers.
func (c *Command) measureOperator(ctx context.Context, say func(format string, args ...any)) error {
	say("starting etcd and the API server")
	server, err := standalone.StartServer(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	there := 0
	for _, count := range slices.Sorted(slices.Values(c.counts)) {
		say("the operator with %d finished calls", count)
		if err := server.CreateFinished(ctx, finishedNamespace, there, count, c.bytes); err != nil {
			return err
		}
		there = count
		cost := operatorCost{Finished: count}
		if err := server.Explain(c.lookAtRest(ctx, server, &cost)); err != nil {
			return err
		}
		c.report.Operator = append(c.report.Operator, cost)
	}
	return nil
}

// lookAtRest runs the operator until it knows what there is, and then for a while.
func (c *Command) lookAtRest(ctx context.Context, server *standalone.Server, cost *operatorCost) (err error) {
	m, err := server.StartManager(ctx, c.manager)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Stop()) }()
	learned, err := m.AwaitLearned(ctx)
	if err != nil {
		return err
	}
	used, took, err := standalone.During(func() error { return cluster.Pause(ctx, time.Duration(c.rest)*time.Second) })
	if err != nil {
		return err
	}
	cost.Load = used[standalone.Operator] / took.Seconds()
	cost.ReadySeconds, cost.LearnedSeconds = m.Ready.Seconds(), learned.Seconds()
	cost.Memory, err = m.Memory(ctx)
	return err
}

// runnerCost is what a runner takes until it can be given a call, in seconds, and while it waits for one, in MiB.
type runnerCost struct {
	Hello figures.Summary `json:"helloSeconds"`
	RSS   figures.Summary `json:"rssMiB"`
}

// helloTimeout is how long a runner may take to say hello.
const helloTimeout = 10 * time.Second

// listen serves runners as the operator does, until the context ends, and tells when one comes or goes.
func listen(ctx context.Context, identity *dispatch.Identity) (address string, changes <-chan time.Time, err error) {
	tls, err := identity.ServerTLS(time.Now())
	if err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	told := make(chan time.Time, 2)
	hub := dispatch.NewHub(func(*dispatch.Runner) { told <- time.Now() })
	server := &dispatch.Server{Hub: hub, Authenticate: identity.CheckToken, TLS: tls, Log: logr.Discard()}
	go func() { _ = server.Serve(ctx, l) }()
	return l.Addr().String(), told, nil
}

// measureRunner starts the runner's program again and again.
func measureRunner(ctx context.Context, program string, samples int) (*runnerCost, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	identity, err := dispatch.NewIdentity(time.Now())
	if err != nil {
		return nil, err
	}
	address, changes, err := listen(ctx, identity)
	if err != nil {
		return nil, err
	}
	var hellos, resident []float64
	for i := range samples {
		job := "job-" + strconv.Itoa(i)
		runner := exec.Command(program)
		runner.Env = []string{
			wire.EnvEndpoints + "=" + address, wire.EnvCA + "=" + identity.CA(),
			wire.EnvToken + "=" + identity.Token("ns", job, job+"-uid"), wire.EnvNamespace + "=ns", wire.EnvCall + "=call",
			wire.EnvJob + "=" + job, wire.EnvJobUID + "=" + job + "-uid", wire.EnvPod + "=pod", wire.EnvPodUID + "=" + job, wire.EnvNode + "=node",
		}
		hello, rss, err := measureStart(ctx, runner, changes)
		if err != nil {
			return nil, fmt.Errorf("start %d of the runner: %w", i, err)
		}
		hellos, resident = append(hellos, hello.Seconds()), append(resident, float64(rss)/standalone.Mebi)
	}
	return &runnerCost{Hello: figures.Summarize(hellos), RSS: figures.Summarize(resident)}, nil
}

// measureStart starts one runner, and ends it when it waits for a call.
func measureStart(ctx context.Context, runner *exec.Cmd, changes <-chan time.Time) (hello time.Duration, rss int, err error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	began := time.Now()
	if err := runner.Start(); err != nil {
		return 0, 0, err
	}
	select {
	case at := <-changes:
		hello = at.Sub(began)
		rss, err = standalone.Resident(runner.Process.Pid)
	case <-ctx.Done():
		err = fmt.Errorf("wait for its hello: %w", ctx.Err())
	}
	_ = runner.Process.Kill()
	_ = runner.Wait()
	if err == nil {
		// That it went is told too.
		<-changes
	}
	return hello, rss, err
}
