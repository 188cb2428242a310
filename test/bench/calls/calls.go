// Package calls measures tool calls beside bare Pods and bare Jobs on the current cluster, in one run.
//
// It has four parts. Rounds: one object of each kind at a time, one after the other, round after round, so that
// whatever else the machine does hits all alike. Bursts: many of one kind at once. Rates: calls that come by the
// clock, whether or not earlier ones have ended, at rising rates. Sessions: calls that
// share a pod, beside the floor and beside an exec into a pod that is there. All run the same command in the same image with
// the same security settings and resources; the Pod and the Job are built from the pod that the operator would make,
// without the runner and without volumes, which is the fastest that they can be. A sample is the time from just
// before the create request until a watch that was opened beforehand shows the end: phase Succeeded, condition
// Complete, condition Finished. Before each sample, what the one before it left is gone, and a pool is full again.
//
// It also counts what the calls cost the operator in API writes. It must not change anything outside the
// namespaces and the policy that it makes and deletes again.
package calls

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"toolcall.dev/operator/test/bench/figures"
)

// Parts of a run, in order.
const (
	partRounds = "rounds"
	partBursts = "bursts"
	partRates  = "rates"
	// partSessions has parts of its own.
	partSessions = "sessions"
)

// Command is the benchmark's command calls.
type Command struct {
	figures.Options
	rounds       int
	warmPerRound int
	pool         int
	bursts       []int
	rates        []float64
	rateSeconds  float64
	ratePool     int
	kinds        []string

	image      string
	withRunner string
	runnerPath string

	auditLog    string
	operatorNS  string
	operatorSA  string
	maxJobRatio float64
	stages      bool
	session     sessionOptions

	report Report
}

// AddFlags adds the command's flags. A node has room for about a hundred pods.
func (c *Command) AddFlags(fs *flag.FlagSet) *figures.Options {
	c.Options.AddFlags(fs, "bin/bench.json", partRounds, partBursts, partRates, partSessions)
	c.rounds, c.warmPerRound, c.pool, c.ratePool, c.rateSeconds = 10, 4, 2, 20, 15
	c.bursts, c.rates, c.kinds = []int{10, 50}, []float64{1, 2, 4, 6, 8}, allKinds
	figures.Add(fs, &c.rounds, "n", figures.Between(0, 10000), "rounds of one of each at a time; 0 for none")
	figures.Add(fs, &c.warmPerRound, "warm-per-round", figures.Between(1, 10000), "warm calls, one after the other, in each round")
	figures.Add(fs, &c.pool, "pool", figures.Between(1, 100), "waiting pods of the warm environment during the rounds")
	figures.Add(fs, &c.bursts, "bursts", figures.List(figures.Between(1, 100)), "`sizes` of bursts, commas between: that many at the same time; empty for none")
	figures.Add(fs, &c.rates, "rates", figures.List(figures.Between(0.01, 1000)), "`rates` of sustained load, calls a second, commas between; empty for none")
	figures.Add(fs, &c.rateSeconds, "rate-seconds", figures.Between(1.0, 3600), "seconds for which each rate is kept")
	figures.Add(fs, &c.ratePool, "rate-pool", figures.Between(1, 100), "waiting pods of the warm environment under sustained load")
	figures.Add(fs, &c.kinds, "kinds", figures.List(figures.OneOf(allKinds)), "`kinds` to measure, commas between")
	fs.StringVar(&c.image, "image", "toolcall.dev/tools:dev", "image that all run in; it must have true in its PATH")
	fs.StringVar(&c.withRunner, "image-with-runner", "toolcall.dev/tools-with-runner:dev", "the same image with the runner in it")
	fs.StringVar(&c.runnerPath, "runner-path", "/usr/local/bin/toolcall-runner", "where that image has the runner")
	fs.StringVar(&c.auditLog, "audit-log", "", "the API server's audit log, to count the operator's writes by resource; without it they are counted by method, from the operator's metrics")
	fs.StringVar(&c.operatorNS, "operator-namespace", "toolcall-system", "namespace of the operator")
	fs.StringVar(&c.operatorSA, "operator-account", "toolcall-operator", "service account of the operator, and the name in its pods' label app.kubernetes.io/name")
	figures.Add(fs, &c.maxJobRatio, "max-job-ratio", figures.Between(0.0, 1000), "fail when the cold call's p50 is more than this times the bare Job's; 0 for never")
	fs.BoolVar(&c.stages, "stages", true, "also show where the time goes; the clocks of this machine and the node must agree")
	c.session.addFlags(fs)
	return &c.Options
}

// Report is what Measure has measured.
func (c *Command) Report() figures.Report { return &c.report }

// Measure runs the parts that were asked for, on the cluster of kubectl.
func (c *Command) Measure(ctx context.Context, say func(format string, args ...any)) (err error) {
	r, err := newRun(c, say)
	if err != nil {
		return err
	}
	if err := r.describe(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.remove()) }()
	if err := r.prepare(ctx); err != nil {
		return err
	}
	err = c.Options.Measure(ctx, figures.Part{Name: partRounds, Measure: r.measureRounds},
		figures.Part{Name: partBursts, Measure: r.measureBursts}, figures.Part{Name: partRates, Measure: r.measureRates},
		figures.Part{Name: partSessions, Measure: r.measureSessions})
	c.report.compute(c.stages)
	return err
}

// Verdict says whether a cold call takes too long beside a bare Job, and whether parts of sessions failed.
func (c *Command) Verdict() error {
	failed := c.report.Sessions.verdict()
	if got := c.report.Ratios[kindCold][kindJob].P50; c.maxJobRatio > 0 && got > c.maxJobRatio {
		return errors.Join(failed, fmt.Errorf("the cold call's p50 is %.3f of the bare Job's, more than %.3f", got, c.maxJobRatio))
	}
	return failed
}
