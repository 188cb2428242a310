// Command bench measures tool calls beside bare Pods and bare Jobs on the current cluster, in one run.
//
// It has three parts. Rounds: one object of each kind at a time, one after the other, round after round, so that
// whatever else the machine does hits all alike. Bursts: many of one kind at once. Rates: calls that come by the
// clock, whether or not earlier ones have ended, at rising rates. All run the same command in the same image with
// the same security settings and resources; the Pod and the Job are built from the pod that the operator would make,
// without the runner and without volumes, which is the fastest that they can be. A sample is the time from just
// before the create request until a watch that was opened beforehand shows the end: phase Succeeded, condition
// Complete, condition Finished. Before each sample, what the one before it left is gone, and a pool is full again.
//
// It also counts what the calls cost the operator in API writes. It must not change anything outside the
// namespaces and the policy that it makes and deletes again.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	if o.from != "" {
		return printSaved(o.from, out, o.markdown)
	}
	b, err := newBed(o)
	if err != nil {
		return err
	}
	report := newReport(o, args)
	if err := report.describe(ctx, b); err != nil {
		return err
	}
	defer func() {
		if cleanup := b.remove(progress); err == nil {
			err = cleanup
		}
	}()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	if err := measureAll(ctx, o, b, report, progress); err != nil {
		return err
	}
	return report.write(o, out)
}

func measureAll(ctx context.Context, o *options, b *bed, r *report, progress io.Writer) error {
	for _, part := range []struct {
		name    string
		measure func(context.Context, *options, *bed, *report, io.Writer) error
	}{
		{partRounds, measureRounds},
		{partBursts, measureBursts},
		{partRates, measureRates},
	} {
		if !o.has(part.name) {
			continue
		}
		if err := part.measure(ctx, o, b, r, progress); err != nil {
			return err
		}
	}
	return nil
}
