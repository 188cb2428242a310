package calls

import (
	"fmt"

	"toolcall.dev/operator/test/bench/figures"
)

// Report is the JSON file, and what the tables are made of.
type Report struct {
	figures.Run
	Image string `json:"image"`

	// Totals are of the rounds, by kind; Ratios by kind of call, then by what it is compared with.
	Totals map[string]figures.Summary            `json:"totals,omitempty"`
	Ratios map[string]map[string]figures.Summary `json:"ratios,omitempty"`
	Stages map[string][]stage                    `json:"stages,omitempty"`
	Writes map[string]*writeReport               `json:"operatorWrites,omitempty"`
	Bursts []burst                               `json:"bursts,omitempty"`
	Rates  []rateResult                          `json:"rates,omitempty"`
	// Sessions is what was measured of calls that share a pod.
	Sessions *sessionReport `json:"sessions,omitempty"`

	Samples []sample `json:"samples"`
}

// compute makes the figures of the rounds from the samples.
func (r *Report) compute(stages bool) {
	r.Totals, r.Ratios, r.Stages = map[string]figures.Summary{}, map[string]map[string]figures.Summary{}, map[string][]stage{}
	for _, kind := range allKinds {
		if s := figures.Summarize(totals(r.Samples, kind)); s.Count > 0 {
			r.Totals[kind] = s
		}
	}
	for _, kind := range callKinds {
		if r.Totals[kind].Count == 0 {
			continue
		}
		r.Ratios[kind] = map[string]figures.Summary{}
		for _, base := range []string{kindPod, kindJob} {
			if r.Totals[base].Count > 0 {
				r.Ratios[kind][base] = r.Totals[kind].Over(r.Totals[base])
			}
		}
		if stages {
			r.Stages[kind] = breakdown(r.Samples, kind)
		}
	}
}

// Tables are the figures as tables.
func (r *Report) Tables() []*figures.Table {
	tables := []*figures.Table{r.totalsTable(), r.ratiosTable()}
	for _, kind := range callKinds {
		tables = append(tables, r.stagesTable(kind))
	}
	tables = append(tables, r.burstsTable(), r.ratesTable())
	for _, kind := range callKinds {
		if w := r.Writes[kind]; w != nil {
			tables = append(tables, w.table(titles[kind]))
		}
	}
	return append(tables, r.Sessions.tables()...)
}

func (r *Report) totalsTable() *figures.Table {
	t := figures.NewTable("one at a time, seconds from create to the end seen|n|min|p50|p90|p99|max")
	for _, kind := range allKinds {
		if s := r.Totals[kind]; s.Count > 0 {
			t.Add("%s|%d|%.3f|%s|%.3f", titles[kind], s.Count, s.Min, s.Cells(1, 3), s.Max)
		}
	}
	return t
}

func (r *Report) ratiosTable() *figures.Table {
	t := figures.NewTable("ratio|p50|p90|p99")
	for _, kind := range callKinds {
		for _, base := range []string{kindPod, kindJob} {
			if q, ok := r.Ratios[kind][base]; ok {
				t.Add("%s / bare %s|%s", titles[kind], base, q.Cells(1, 3))
			}
		}
	}
	return t
}

func (r *Report) stagesTable(kind string) *figures.Table {
	t := figures.NewTable(titles[kind] + ", milliseconds|p50 since create|step|p90")
	for _, s := range r.Stages[kind] {
		t.Add("%s|%.1f|+%.1f|%.1f", s.Name, 1000*s.At.P50, 1000*s.Step, 1000*s.At.P90)
	}
	return t
}

func (r *Report) burstsTable() *figures.Table {
	t := figures.NewTable("at the same time, seconds|n|p50|p90|p99|all ended after|went warm")
	for _, b := range r.Bursts {
		t.Add("%s|%d|%s|%.3f|%s", titles[b.Kind], b.Size, b.Each.Cells(1, 3), b.Seconds, wentWarm(b.Kind, b.WarmShare))
	}
	return t
}

func (r *Report) ratesTable() *figures.Table {
	t := figures.NewTable("sustained, seconds|calls/s|n|p50|p90|p99|went warm|behind at the end|held")
	for _, x := range r.Rates {
		held := map[bool]string{true: "yes", false: "no"}[x.Holds]
		t.Add("%s|%g|%d|%s|%s|%d|%s", titles[x.Kind], x.Rate, x.Each.Count, x.Each.Cells(1, 3), wentWarm(x.Kind, x.WarmShare), x.Behind, held)
	}
	return t
}

// wentWarm is nothing where no call can.
func wentWarm(kind string, share float64) string {
	if kind != kindWarm && kind != kindHeld {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

func (w *writeReport) table(title string) *figures.Table {
	t := figures.NewTable("write|per call")
	t.Above = fmt.Sprintf("API writes of the operator per %s: %.2f, of %.0f calls, from %s (%s); refused: %.0f",
		title, w.PerCall.Total(), w.Calls, w.Source, w.Note, w.PerCall.Refused)
	for _, name := range w.PerCall.Names() {
		t.Add("%s|%.2f", name, w.PerCall.ByName[name])
	}
	return t
}
