// Command operatorbench measures the operator alone: the real manager as a process of its own, with its real rights,
// against a real API server and etcd, and no node. What a Job controller, a kubelet and a runner would do is done
// here: each Job gets a pod, a runner connects with the Job's token and takes its call, reports a result at once and
// waits for the acknowledgement, and pod and Job end. So thousands of calls a minute go through the operator, and
// what they cost it in CPU, memory and API writes is not lost in the cost of containers.
//
// Three parts: cold calls, warm calls, and what a cluster that remembers many finished calls does to memory and
// latency. It needs etcd and kube-apiserver in KUBEBUILDER_ASSETS and changes nothing outside a temporary folder.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"toolcall.dev/operator/test/internal/figures"
)

func main() {
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "operatorbench:", err)
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
	fmt.Fprintln(progress, "operatorbench: starting etcd and the API server")
	s, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer s.stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := &bench{options: o, server: s, progress: progress, report: newReport(args)}
	defer func() {
		if stopped := b.stopManager(); err == nil {
			err = stopped
		}
	}()
	if err := b.measure(ctx); err != nil {
		return err
	}
	b.report.Seconds, b.report.LoadAfter = time.Since(b.report.Time).Seconds(), figures.Load()
	b.report.print(out, o.markdown)
	return figures.Save(o.json, b.report)
}
