package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// report is the JSON file, and what the table is made of.
type report struct {
	Time    time.Time          `json:"time"`
	Seconds float64            `json:"seconds"`
	Command string             `json:"command"`
	Commit  string             `json:"commit"`
	Machine machine            `json:"machine"`
	Image   string             `json:"image"`
	Totals  map[string]summary `json:"totals"`
	// Ratios of the call's percentiles to those of the other kinds.
	Ratios   map[string]ratio   `json:"ratios"`
	Parts    map[string]summary `json:"callParts,omitempty"`
	Writes   *writeReport       `json:"operatorWrites"`
	Parallel *parallelResult    `json:"parallel,omitempty"`
	Samples  []sample           `json:"samples"`
}

// machine is where it was measured.
type machine struct {
	Cores      int    `json:"cores"`
	Kernel     string `json:"kernel"`
	Runtime    string `json:"containerRuntime"`
	Kubernetes string `json:"kubernetes"`
	Nodes      int    `json:"nodes"`
	// Load is the machine's load average over one minute when the benchmark began.
	Load string `json:"load"`
}

func newReport(o *options, args []string) *report {
	command := strings.TrimSpace("go run ./test/bench " + strings.Join(args, " "))
	return &report{Time: time.Now(), Command: command, Commit: commit(), Image: o.image}
}

// commit of the checkout that the benchmark is run from, with a plus sign when it has changes; empty when git
// can't say.
func commit() string {
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return ""
	}
	id := strings.TrimSpace(string(head))
	if changes, err := exec.Command("git", "status", "--porcelain").Output(); err != nil || len(changes) > 0 {
		id += "+"
	}
	return id
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
		Nodes: len(nodes.Items), Load: load(),
	}
	return nil
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil || runtime.GOOS != "linux" {
		return ""
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// write computes the figures, prints the table, and saves everything.
func (r *report) write(o *options, out io.Writer) error {
	r.Totals, r.Ratios = map[string]summary{}, map[string]ratio{}
	for _, kind := range []string{kindPod, kindJob, kindCall} {
		r.Totals[kind] = summarize(r.Samples, kind, total)
	}
	for _, kind := range []string{kindPod, kindJob} {
		r.Ratios[kind] = r.Totals[kindCall].over(r.Totals[kind])
	}
	if o.latencies {
		r.Parts = map[string]summary{
			"createToProcessStart": summarize(r.Samples, kindCall, start),
			"processEndToFinished": summarize(r.Samples, kindCall, result),
		}
	}
	r.print(out)
	if err := r.save(o.json); err != nil {
		return err
	}
	if got := r.Ratios[kindJob].P50; o.maxJobRatio > 0 && got > o.maxJobRatio {
		return fmt.Errorf("the call's p50 is %.3f of the bare Job's, more than %.3f", got, o.maxJobRatio)
	}
	return nil
}

func (r *report) save(file string) error {
	if file == "" {
		return nil
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make the report's folder: %w", err)
	}
	if err := os.WriteFile(file, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
