// Package operator measures the operator alone: its own program with its real rights against a real API server, and no
// node. What a Job controller, a kubelet and a runner would do is done here: each Job gets a pod, a runner connects
// with the Job's token and takes its call, reports a result at once and waits for the acknowledgement, and pod and Job
// end. So thousands of calls a minute go through the operator, and what they cost it in CPU, memory and API writes is
// not lost in the cost of containers. The floor is the API server's share, with no operator there. Another checkout's
// build can be measured in turns with this one's, on API servers of its own.
package operator

import (
	"context"
	"errors"
	"flag"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/measure"
	"toolcall.dev/operator/test/bench/standalone"
)

const (
	// rounds are the turns that each scenario has.
	rounds = 5
	// settleTime is what the operator may take after the last call's end for what follows from it.
	settleTime = 3 * time.Second
	// namespace is where a site's calls run.
	namespace = "bench"
	// inFlight are the calls that are on their way at the same time in the parts cold and warm.
	inFlight = 100
	// warmPool is how many pods wait in the part warm, finishedPool in the part finished.
	warmPool     = 100
	finishedPool = 10
	// manyFinished are the finished calls in the part finished.
	manyFinished = 50_000
	// idleSessions are in the part session, for the operator's memory.
	idleSessions = 300
	// rest is how long the operator is left alone before its memory is looked at.
	rest = 30 * time.Second
)

// Command is the benchmark's command operator.
type Command struct {
	measure.Options
	calls  int
	beside string
}

// AddFlags adds the command's flags.
func (c *Command) AddFlags(fs *flag.FlagSet) *measure.Options {
	c.Options.AddFlags(fs, "bin/bench-operator.json", c.parts(nil))
	fs.IntVar(&c.calls, "calls", 10000, "calls of each scenario with many at once; of those with one at a time a tenth as many")
	fs.StringVar(&c.beside, "beside", "",
		"folder of another checkout of the project, built, that is measured in turns with this one; empty for none")
	return &c.Options
}

// parts are those of a run, in order.
func (c *Command) parts(report *measure.Report) []measure.Part {
	of := func(name string, do func(b *bench, ctx context.Context) error) measure.Part {
		return measure.Part{Name: name, Measure: func(ctx context.Context) (err error) {
			b := &bench{Command: c, report: report, part: name}
			defer func() { err = b.end(err) }()
			return do(b, ctx)
		}}
	}
	return []measure.Part{
		of("rest", (*bench).measureRest), of("runner", (*bench).measureRunners), of("floor", (*bench).measureFloor),
		of("cold", (*bench).measureCold), of("warm", (*bench).measureWarm), of("session", (*bench).measureSessions),
		of("finished", (*bench).measureFinished),
	}
}

// Measure runs the parts that were asked for.
func (c *Command) Measure(ctx context.Context, report *measure.Report) error {
	return c.Options.Measure(ctx, report, c.parts(report))
}

// bench is one part of a run.
type bench struct {
	*Command
	report *measure.Report
	part   string
	sites  []*site
}

// build is the project of a checkout.
type build struct{ folder, suffix string }

// builds are those to compare, this checkout's last.
func (b *bench) builds() []build {
	own := build{folder: "."}
	if b.beside == "" {
		return []build{own}
	}
	return []build{{b.beside, " (" + b.beside + ")"}, own}
}

// name is what a scenario of a build is called.
func (o build) name(scenario string) string { return scenario + o.suffix }

// against are the scenarios of that name that were measured of other builds, and further ones of this build.
func (b *bench) against(o build, scenario string, further ...string) (names []string) {
	for _, name := range further {
		names = append(names, o.name(name))
	}
	if b.beside != "" && o.folder == "." {
		names = append(names, b.builds()[0].name(scenario))
	}
	return names
}

// site is a build on an API server of its own.
type site struct {
	*standalone.Server
	build
	// process is the operator; nil where there is none.
	process *standalone.Manager
	// stops end what was started here, the last one first.
	stops []func() error
}

// newSite installs a build, without its operator.
func (b *bench) newSite(ctx context.Context, o build) (*site, error) {
	b.report.Say("%s: starting etcd and the API server", b.part)
	server, err := standalone.StartServer(ctx, o.folder)
	if err != nil {
		return nil, err
	}
	s := &site{Server: server, build: o}
	b.sites = append(b.sites, s)
	return s, nil
}

// newOperatorSite installs a build on a cluster with so many finished calls, and starts its operator.
func (b *bench) newOperatorSite(ctx context.Context, o build, finished int) (*site, error) {
	s, err := b.newSite(ctx, o)
	if err != nil {
		return nil, err
	}
	if finished > 0 {
		b.report.Say("%s: creating %d finished calls", b.part, finished)
		if err := s.CreateFinished(ctx, "finished", finished); err != nil {
			return nil, err
		}
	}
	if s.process, err = s.StartManager(ctx); err != nil {
		return nil, err
	}
	s.stops = append(s.stops, s.process.Stop)
	return s, cluster.Create(ctx, s.Client, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: cluster.NodeName}})
}

// end ends the part's sites.
func (b *bench) end(err error) error {
	for _, s := range b.sites {
		var failures []error
		for i := len(s.stops) - 1; i >= 0; i-- {
			failures = append(failures, s.stops[i]())
		}
		err = s.Explain(errors.Join(append(failures, err)...))
		s.Stop()
	}
	return err
}

// serve creates the namespace with an environment whose calls anybody may make and so many waiting pods, and serves
// its Jobs.
func (s *site) serve(ctx context.Context, pool int) error {
	n, err := startNode(ctx, s.Client, namespace)
	if err != nil {
		return err
	}
	s.stops = append(s.stops, n.stop)
	environment := cluster.NewEnvironment(namespace, namespace, "example.com/tools:1")
	if pool > 0 {
		environment.Spec.WarmPool = &v1alpha1.WarmPool{Size: int32(pool)}
	}
	err = cluster.Create(ctx, s.Client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, environment)
	if err != nil {
		return err
	}
	return cluster.AwaitEnvironment(ctx, s.Client, namespace, pool)
}

// inTurn is how many operations or calls each turn has of a number.
func inTurn(all int) int { return max(1, all/rounds) }

// addMemory reports the operator's memory.
func (b *bench) addMemory(ctx context.Context, s *site, scenario string, further ...string) error {
	memory, err := s.process.Memory(ctx)
	if err != nil {
		return err
	}
	against := b.against(s.build, scenario, further...)
	b.report.Add(b.part, s.name(scenario), "MiB resident", []float64{memory.Resident}, against...)
	b.report.Add(b.part, s.name(scenario), "MiB of heap", []float64{memory.Heap}, against...)
	return nil
}

// measureRest looks at new operators with which nothing happens.
func (b *bench) measureRest(ctx context.Context) error {
	for _, o := range b.builds() {
		s, err := b.newOperatorSite(ctx, o, 0)
		if err != nil {
			return err
		}
		// What follows from the start is over then.
		if err := measure.Pause(ctx, settleTime); err != nil {
			return err
		}
		before, err := s.Spent(namespace)
		if err != nil {
			return err
		}
		if err := measure.Pause(ctx, rest); err != nil {
			return err
		}
		after, err := s.Spent(namespace)
		if err != nil {
			return err
		}
		const busy = "ms CPU of " + standalone.Operator
		share := (after[busy] - before[busy]) / 10 / rest.Seconds()
		b.report.Add(b.part, o.name("operator"), "% of a processor", []float64{share}, b.against(o, "operator")...)
		if err := b.addMemory(ctx, s, "operator"); err != nil {
			return err
		}
	}
	return nil
}
