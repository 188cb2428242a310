package operator

import (
	"fmt"
	"strings"

	"toolcall.dev/operator/test/bench/figures"
	"toolcall.dev/operator/test/bench/standalone"
)

// Report is the JSON file, and what the tables are made of.
type Report struct {
	figures.Run
	Floor    []*floorResult  `json:"floor,omitempty"`
	Parts    []*part         `json:"parts,omitempty"`
	Crowd    *crowdResult    `json:"crowd,omitempty"`
	Finished *finishedResult `json:"finished,omitempty"`
}

// part is what many calls came to.
type part struct {
	Part           string          `json:"part"`
	Calls          int             `json:"calls"`
	CallsPerSecond float64         `json:"callsPerSecond"`
	Latency        figures.Summary `json:"latency"`
	WarmShare      float64         `json:"warmShare"`
	// CPU is milliseconds of processor time per call, by process.
	CPU map[string]float64 `json:"cpuMillisecondsPerCall"`
	// Writes are the operator's per call; they and its memory are nil where there is no operator.
	Writes *figures.Writes    `json:"writesPerCall,omitempty"`
	Before *standalone.Memory `json:"before,omitempty"`
	After  *standalone.Memory `json:"after,omitempty"`
}

// title is what tables call the part.
func (p *part) title() string {
	if p.Part == partBare {
		return "the writes of cold calls, without an operator"
	}
	return p.Part
}

// look is what an operator is like at one time.
type look struct {
	Memory    standalone.Memory `json:"memory"`
	Latency   figures.Summary   `json:"latency"`
	WarmShare float64           `json:"warmShare"`
	// CPU is what each process used of the processors for a new call, in milliseconds.
	CPU map[string]float64 `json:"cpuMillisecondsPerCall"`
	// Bare is how long the writes of a call take, as many at a time, when there is no operator.
	Bare figures.Summary `json:"bare"`
}

// finishedResult compares before and after there were many finished calls.
type finishedResult struct {
	Calls       int  `json:"calls"`
	OutputBytes int  `json:"outputBytes"`
	Before      look `json:"before"`
	After       look `json:"after"`
	// ReadySeconds is what the operator took to start with them.
	ReadySeconds float64 `json:"readySeconds"`
	// LearnedSeconds is when it knew which calls had ended, from its start on. New calls come after that.
	LearnedSeconds float64 `json:"learnedSeconds"`
}

// floorResult is what calls without an operator came to, with some of what we add to the kind.
type floorResult struct {
	Variant string `json:"variant"`
	// Rules are the CEL rules of the kind's definition.
	Rules int `json:"celRules"`
	// Alone are the times of calls one at a time; the other figures are of AtOnce at a time.
	Alone          figures.Summary    `json:"oneAtATime"`
	AtOnce         int                `json:"atOnce"`
	CallsPerSecond float64            `json:"callsPerSecond"`
	Latency        figures.Summary    `json:"latency"`
	CPU            map[string]float64 `json:"cpuMillisecondsPerCall"`
}

// Tables are the figures as tables.
func (r *Report) Tables() []*figures.Table {
	return append([]*figures.Table{r.floorTable(), r.partsTable(), r.cpuTable(), r.writesTable(), r.crowdTable()}, r.finishedTables()...)
}

func (r *Report) floorTable() *figures.Table {
	t := figures.NewTable("floor: a call created, one status patch by another client, its end seen|CEL rules|" +
		"one at a time p50 ms|p90 ms|p99 ms|calls/s at once|p50 ms|p90 ms|p99 ms|CPU ms/call, API server|etcd")
	for _, f := range r.Floor {
		t.Add("%s|%d|%s|%.1f (%d)|%s|%.2f|%.2f", f.Variant, f.Rules, f.Alone.Cells(1000, 1), f.CallsPerSecond, f.AtOnce,
			f.Latency.Cells(1000, 1), f.CPU[standalone.APIServer], f.CPU[standalone.Etcd])
	}
	return t
}

func (r *Report) partsTable() *figures.Table {
	t := figures.NewTable("operator alone|calls|calls/s|p50 s|p90 s|p99 s|went warm|writes/call|refused|RSS before MiB|after")
	for _, p := range r.Parts {
		operators := "||||"
		if p.Writes != nil {
			operators = fmt.Sprintf("%.0f %%|%.2f|%.0f|%.0f|%.0f", 100*p.WarmShare, p.Writes.Total(), p.Writes.Refused, p.Before.RSS, p.After.RSS)
		}
		t.Add("%s|%d|%.1f|%s|%s", p.title(), p.Calls, p.CallsPerSecond, p.Latency.Cells(1, 3), operators)
	}
	return t
}

// cpuTable says who the machine's processors worked for.
func (r *Report) cpuTable() *figures.Table {
	t := figures.NewTable("CPU, milliseconds per call|" + strings.Join(standalone.Processes, "|") + "|all")
	for _, p := range r.Parts {
		row, sum := p.title(), 0.0
		for _, name := range standalone.Processes {
			row += "|"
			if ms, ok := p.CPU[name]; ok {
				row += fmt.Sprintf("%.2f", ms)
				sum += ms
			}
		}
		t.Add("%s|%.2f", row, sum)
	}
	return t
}

func (r *Report) writesTable() *figures.Table {
	t := figures.NewTable("writes of the operator|per call")
	for _, p := range r.Parts {
		if p.Writes == nil {
			continue
		}
		for _, name := range p.Writes.Names() {
			t.Add("%s: %s|%.2f", p.Part, name, p.Writes.ByName[name])
		}
	}
	return t
}

// finishedTables say what finished calls cost the operator, and what they cost new calls.
func (r *Report) finishedTables() []*figures.Table {
	operator := figures.NewTable("finished calls there|RSS MiB|heap in use MiB|heap allocated MiB|ready after s|knows them after s")
	calls := figures.NewTable("finished calls there|new calls p50 s|p90 s|p99 s|went warm|CPU ms/call, operator|API server|" +
		"the writes alone p50 s|p90 s|p99 s")
	if f := r.Finished; f != nil {
		operator.Add("0|%s||", f.Before.Memory)
		operator.Add("%d|%s|%.1f|%.1f", f.Calls, f.After.Memory, f.ReadySeconds, f.LearnedSeconds)
		calls.Add("0|%s", f.Before)
		calls.Add("%d|%s", f.Calls, f.After)
	}
	return []*figures.Table{operator, calls}
}

// String is a look at new calls as cells of a table.
func (l look) String() string {
	return fmt.Sprintf("%s|%.0f %%|%.2f|%.2f|%s", l.Latency.Cells(1, 3), 100*l.WarmShare,
		l.CPU[standalone.Operator], l.CPU[standalone.APIServer], l.Bare.Cells(1, 3))
}
