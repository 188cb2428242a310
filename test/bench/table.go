package main

import (
	"fmt"
	"io"

	"toolcall.dev/operator/test/internal/figures"
)

// print shows the figures as tables.
func (r *report) print(out io.Writer, markdown bool) {
	m := r.Machine
	fmt.Fprintf(out, "%s, commit %s, %.0f s\n%s\n", r.Time.UTC().Format("2006-01-02T15:04:05Z"), r.Commit, r.Seconds, r.Command)
	fmt.Fprintf(out, "Kubernetes %s, %d node(s), the first with %d cores, Linux %s, %s; load before %s, after %s\n\n",
		m.Kubernetes, m.Nodes, m.Cores, m.Kernel, m.Runtime, m.Load, m.LoadAfter)
	r.totalsTable().Print(out, markdown)
	r.ratiosTable().Print(out, markdown)
	for _, kind := range callKinds {
		if t := r.stagesTable(kind); len(t.Rows) > 0 {
			t.Print(out, markdown)
		}
	}
	r.burstsTable().Print(out, markdown)
	r.ratesTable().Print(out, markdown)
	for _, kind := range callKinds {
		if w := r.Writes[kind]; w != nil {
			fmt.Fprintf(out, "API writes of the operator per %s: %.2f, of %.0f calls, from %s (%s); refused: %.0f\n\n", titles[kind], w.total(), w.Calls, w.Source, w.Note, w.Refused)
			w.table().Print(out, markdown)
		}
	}
}

func seconds(value float64) string { return fmt.Sprintf("%.3f", value) }
func millis(value float64) string  { return fmt.Sprintf("%.1f", 1000*value) }

func (r *report) totalsTable() *figures.Table {
	t := &figures.Table{Header: []string{"one at a time, seconds from create to the end seen", "n", "min", "p50", "p90", "p99", "max"}}
	for _, kind := range allKinds {
		if s := r.Totals[kind]; s.Count > 0 {
			t.Add(titles[kind], fmt.Sprint(s.Count), seconds(s.Min), seconds(s.P50), seconds(s.P90), seconds(s.P99), seconds(s.Max))
		}
	}
	return t
}

func (r *report) ratiosTable() *figures.Table {
	t := &figures.Table{Header: []string{"ratio", "p50", "p90", "p99"}}
	for _, kind := range callKinds {
		for _, base := range []string{kindPod, kindJob} {
			if q, ok := r.Ratios[kind][base]; ok {
				t.Add(titles[kind]+" / bare "+base, seconds(q.P50), seconds(q.P90), seconds(q.P99))
			}
		}
	}
	return t
}

func (r *report) stagesTable(kind string) *figures.Table {
	t := &figures.Table{Header: []string{titles[kind] + ", milliseconds", "p50 since create", "step", "p90"}}
	for _, s := range r.Stages[kind] {
		t.Add(s.Name, millis(s.At.P50), "+"+millis(s.Step), millis(s.At.P90))
	}
	return t
}

func (r *report) burstsTable() *figures.Table {
	t := &figures.Table{Header: []string{"at the same time, seconds", "n", "p50", "p90", "p99", "all ended after", "went warm"}}
	for _, b := range r.Bursts {
		t.Add(titles[b.Kind], fmt.Sprint(b.Size), seconds(b.Each.P50), seconds(b.Each.P90), seconds(b.Each.P99), seconds(b.Seconds), percent(b.Kind, b.WarmShare))
	}
	return t
}

func (r *report) ratesTable() *figures.Table {
	t := &figures.Table{Header: []string{"sustained, seconds", "calls/s", "n", "p50", "p90", "p99", "went warm", "behind at the end", "held"}}
	for _, x := range r.Rates {
		held := "no"
		if x.Holds {
			held = "yes"
		}
		t.Add(titles[x.Kind], fmt.Sprint(x.Rate), fmt.Sprint(x.Each.Count), seconds(x.Each.P50), seconds(x.Each.P90), seconds(x.Each.P99), percent(x.Kind, x.WarmShare), fmt.Sprint(x.Behind), held)
	}
	return t
}

// percent of calls that went warm; nothing where none can.
func percent(kind string, share float64) string {
	if kind != kindWarm {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

func (w *writeReport) table() *figures.Table {
	t := &figures.Table{Header: []string{"write", "per call"}}
	for _, name := range w.names() {
		t.Add(name, fmt.Sprintf("%.2f", w.PerCall[name]))
	}
	return t
}
