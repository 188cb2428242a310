package main

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"
)

// print shows the figures as a table.
func (r *report) print(out io.Writer) {
	m := r.Machine
	fmt.Fprintf(out, "%s, commit %s\n%s\n", r.Time.UTC().Format(time.RFC3339), r.Commit, r.Command)
	fmt.Fprintf(out, "Kubernetes %s, %d node(s), the first with %d cores, Linux %s, %s; load before: %s\n\n",
		m.Kubernetes, m.Nodes, m.Cores, m.Kernel, m.Runtime, m.Load)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "seconds\tn\tmin\tp50\tp90\tp99\tmax\t\n")
	row(w, "bare Pod, create to Succeeded", r.Totals[kindPod])
	row(w, "bare Job, create to Complete", r.Totals[kindJob])
	row(w, "ToolCall, create to Finished", r.Totals[kindCall])
	if r.Parts != nil {
		row(w, "of it, create to process start", r.Parts["createToProcessStart"])
		row(w, "of it, process end to Finished", r.Parts["processEndToFinished"])
	}
	compare(w, "ToolCall / bare Pod", r.Ratios[kindPod])
	compare(w, "ToolCall / bare Job", r.Ratios[kindJob])
	w.Flush()
	r.printParallel(out)
	r.printWrites(out)
}

func row(w io.Writer, name string, s summary) {
	fmt.Fprintf(w, "%s\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t\n", name, s.Count, s.Min, s.P50, s.P90, s.P99, s.Max)
}

func compare(w io.Writer, name string, r ratio) {
	fmt.Fprintf(w, "%s\t\t\t%.3f\t%.3f\t%.3f\t\t\n", name, r.P50, r.P90, r.P99)
}

func (r *report) printParallel(out io.Writer) {
	if p := r.Parallel; p != nil {
		fmt.Fprintf(out, "\n%d calls at the same time: all ended after %.3f s, %.1f calls/s; each: p50 %.3f, p90 %.3f, p99 %.3f s\n",
			p.Calls, p.Seconds, p.CallsPerSecond, p.Each.P50, p.Each.P90, p.Each.P99)
	}
}

func (r *report) printWrites(out io.Writer) {
	if r.Writes == nil {
		return
	}
	fmt.Fprintf(out, "\nAPI writes of the operator per call, from %s (%s): %.2f\n", r.Writes.Source, r.Writes.Note, r.Writes.total())
	for _, name := range r.Writes.names() {
		fmt.Fprintf(out, "  %6.2f  %s\n", r.Writes.PerCall[name], name)
	}
	if r.Writes.ReviewsPerCall > 0 {
		fmt.Fprintf(out, "besides %.2f access reviews per call, which store nothing\n", r.Writes.ReviewsPerCall)
	}
	fmt.Fprintf(out, "writes that the API server refused, all calls together: %.0f\n", r.Writes.Refused)
}

// progressLine is one line that is written over on a terminal, and a line for every tenth round elsewhere.
type progressLine struct {
	out      io.Writer
	terminal bool
	began    time.Time
}

func newProgressLine(out io.Writer) *progressLine {
	p := &progressLine{out: out, began: time.Now()}
	if file, ok := out.(*os.File); ok {
		info, err := file.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

func (p *progressLine) show(round, rounds int, kind string, done []sample) {
	text := fmt.Sprintf("bench: round %d of %d, %.0f s", round, rounds, time.Since(p.began).Seconds())
	for _, k := range []string{kindPod, kindJob, kindCall} {
		if s := summarize(done, k, total); s.Count > 0 {
			text += fmt.Sprintf(", %s p50 %.2f s", k, s.P50)
		}
	}
	switch {
	case p.terminal:
		fmt.Fprintf(p.out, "\r\033[K%s, now %s", text, kind)
	case kind == kindPod && round%10 == 1:
		fmt.Fprintln(p.out, text)
	}
}

func (p *progressLine) end() {
	if p.terminal {
		fmt.Fprintln(p.out)
	}
}
