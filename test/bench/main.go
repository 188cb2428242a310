// Command bench measures tool calls beside bare Pods and bare Jobs on the current cluster, in one run.
//
// Every round makes one Pod, one Job and one ToolCall, one after the other, so that whatever else the machine
// does hits all three alike. All run the same command in the same image with the same security settings and
// resources; the Pod and the Job are built from the pod that the operator would make, without the runner and
// without volumes, which is the fastest that they can be. A sample is the time from just before the create
// request until a watch that was opened beforehand shows the end: phase Succeeded, condition Complete,
// condition Finished. After each sample its pod is waited for and removed before the next one begins.
//
// It also counts what the calls cost the operator in API writes. It must not change anything outside the
// namespace and the policy that it makes and deletes again.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
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
	writes, err := newWriteCounter(ctx, o, b)
	if err != nil {
		return err
	}
	if err := measureAll(ctx, o, b, report, progress); err != nil {
		return err
	}
	if report.Writes, err = writes.count(ctx, o.rounds); err != nil {
		return err
	}
	if err := measureParallel(ctx, o, b, report, progress); err != nil {
		return err
	}
	report.Seconds = time.Since(report.Time).Seconds()
	return report.write(o, out)
}
