package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/test/internal/figures"
)

// report is the JSON file, and what the tables are made of.
type report struct {
	Time    time.Time `json:"time"`
	Seconds float64   `json:"seconds"`
	Command string    `json:"command"`
	Commit  string    `json:"commit"`
	Machine machine   `json:"machine"`
	Image   string    `json:"image"`

	// Totals are of the rounds, by kind; Ratios by kind of call, then by what it is compared with.
	Totals map[string]figures.Summary          `json:"totals,omitempty"`
	Ratios map[string]map[string]figures.Ratio `json:"ratios,omitempty"`
	Stages map[string][]stage                  `json:"stages,omitempty"`
	Writes map[string]*writeReport             `json:"operatorWrites,omitempty"`
	Bursts []burst                             `json:"bursts,omitempty"`
	Rates  []rateResult                        `json:"rates,omitempty"`

	Samples []sample `json:"samples"`
}

// machine is where it was measured.
type machine struct {
	Cores      int    `json:"cores"`
	Kernel     string `json:"kernel"`
	Runtime    string `json:"containerRuntime"`
	Kubernetes string `json:"kubernetes"`
	Nodes      int    `json:"nodes"`
	// Load is the machine's load average over one minute when the benchmark began, LoadAfter when it had ended.
	Load      string `json:"load"`
	LoadAfter string `json:"loadAfter"`
}

func newReport(o *options, args []string) *report {
	command := strings.TrimSpace("go run ./test/bench " + strings.Join(args, " "))
	return &report{Time: time.Now(), Command: command, Commit: figures.Commit(), Image: o.image}
}

// describe asks the cluster what it is.
func (r *report) describe(ctx context.Context, b *bed) error {
	version, err := b.clients.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("reach the cluster: %w", err)
	}
	nodes, err := b.clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil || len(nodes.Items) == 0 {
		return fmt.Errorf("look at the cluster's nodes (%d there): %w", len(nodes.Items), err)
	}
	node := nodes.Items[0]
	r.Machine = machine{
		Cores: int(node.Status.Capacity.Cpu().Value()), Kernel: node.Status.NodeInfo.KernelVersion,
		Runtime: node.Status.NodeInfo.ContainerRuntimeVersion, Kubernetes: version.GitVersion,
		Nodes: len(nodes.Items), Load: figures.Load(),
	}
	return nil
}

// write computes the figures, prints the tables, and saves everything.
func (r *report) write(o *options, out io.Writer) error {
	r.Seconds, r.Machine.LoadAfter = time.Since(r.Time).Seconds(), figures.Load()
	r.compute(o)
	r.print(out, o.markdown)
	if err := figures.Save(o.json, r); err != nil {
		return err
	}
	if got := r.Ratios[kindCold][kindJob].P50; o.maxJobRatio > 0 && got > o.maxJobRatio {
		return fmt.Errorf("the cold call's p50 is %.3f of the bare Job's, more than %.3f", got, o.maxJobRatio)
	}
	return nil
}

func (r *report) compute(o *options) {
	r.Totals, r.Ratios, r.Stages = map[string]figures.Summary{}, map[string]map[string]figures.Ratio{}, map[string][]stage{}
	for _, kind := range allKinds {
		if s := figures.Summarize(totals(r.Samples, kind)); s.Count > 0 {
			r.Totals[kind] = s
		}
	}
	for _, kind := range callKinds {
		if r.Totals[kind].Count == 0 {
			continue
		}
		r.Ratios[kind] = map[string]figures.Ratio{}
		for _, base := range []string{kindPod, kindJob} {
			if r.Totals[base].Count > 0 {
				r.Ratios[kind][base] = r.Totals[kind].Over(r.Totals[base])
			}
		}
		if o.stages {
			r.Stages[kind] = breakdown(r.Samples, kind)
		}
	}
}

// printSaved shows what an earlier run saved.
func printSaved(file string, out io.Writer, markdown bool) error {
	r := &report{}
	if err := figures.Read(file, r); err != nil {
		return err
	}
	r.print(out, markdown)
	return nil
}
