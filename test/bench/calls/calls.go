// Package calls measures tool calls on the current cluster, beside what a user would do instead: bare Pods, bare Jobs,
// kubectl exec, kubectl cp and kubectl logs; and beside the floor.
//
// Its parts are independent. Each has namespaces and policies of its own, so that nobody's quota, default environment or
// default policy takes part, and they are gone at its end. What is measured in a part takes turns. All run the same
// command in the same image with the same security settings and resources; the Pod and the Job are built from the pod
// that the operator would make, without the runner and without volumes, which is the fastest that they can be. A time is
// from just before the create request until a watch that was opened beforehand shows the end: phase Succeeded, condition
// Complete, condition Finished. Before each, what the one before it left is gone, and a pool is full again.
//
// It must not change anything outside the namespaces, the policies and the kind that it makes and deletes again.
package calls

import (
	"context"
	"flag"

	"toolcall.dev/operator/test/bench/measure"
)

// Command is the benchmark's command calls.
type Command struct {
	measure.Options
	rounds     int
	image      string
	withRunner string
	kubectl    string
	plugin     string
}

// AddFlags adds the command's flags.
func (c *Command) AddFlags(fs *flag.FlagSet) *measure.Options {
	c.Options.AddFlags(fs, "bin/bench.json", parts(nil))
	fs.IntVar(&c.rounds, "n", 10, "rounds of each part")
	fs.StringVar(&c.image, "image", "toolcall.dev/tools:dev",
		"image that all run in; it must have true, sleep, cat, tar and python3 in its PATH")
	fs.StringVar(&c.withRunner, "image-with-runner", "toolcall.dev/tools-with-runner:dev",
		"the same image with the runner in it, as /usr/local/bin/toolcall-runner")
	fs.StringVar(&c.kubectl, "kubectl", "kubectl", "the kubectl whose exec and cp are measured")
	fs.StringVar(&c.plugin, "plugin", "bin/kubectl-toolcall", "the plugin whose cp is measured")
	return &c.Options
}

// parts are those of a run, in order; with nil for their names alone.
func parts(r *bench) []measure.Part {
	of := func(name string, do func(p *part, ctx context.Context) error) measure.Part {
		return measure.Part{Name: name, Measure: func(ctx context.Context) (err error) {
			p := &part{bench: r, name: name}
			defer func() { err = p.end(ctx, err) }()
			return do(p, ctx)
		}}
	}
	return []measure.Part{
		of("rounds", (*part).measureRounds), of("held", (*part).measureHeld), of("bursts", (*part).measureBursts),
		of("rates", (*part).measureRates), of("sessions", (*part).measureSessions), of("sustained", (*part).measureSustained),
		of("resume", (*part).measureResumes), of("files", (*part).measureFiles), of("output", (*part).measureOutput),
		of("transfer", (*part).measureTransfer), of("approvals", (*part).measureApprovals),
	}
}

// Measure runs the parts that were asked for, on the cluster of kubectl.
func (c *Command) Measure(ctx context.Context, report *measure.Report) error {
	r, err := newBench(c, report)
	if err != nil {
		return err
	}
	if err := r.describe(ctx); err != nil {
		return err
	}
	return c.Options.Measure(ctx, report, parts(r))
}
