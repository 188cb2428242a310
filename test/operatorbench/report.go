package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"toolcall.dev/operator/test/internal/figures"
)

// report is the JSON file, and what the tables are made of.
type report struct {
	Time      time.Time       `json:"time"`
	Seconds   float64         `json:"seconds"`
	Command   string          `json:"command"`
	Commit    string          `json:"commit"`
	Cores     int             `json:"cores"`
	Load      string          `json:"load"`
	LoadAfter string          `json:"loadAfter"`
	Parts     []*throughput   `json:"parts,omitempty"`
	Bare      *bareResult     `json:"bare,omitempty"`
	Finished  *finishedResult `json:"finished,omitempty"`
}

// throughput is what many calls came to.
type throughput struct {
	Part           string          `json:"part"`
	Calls          int             `json:"calls"`
	CallsPerSecond float64         `json:"callsPerSecond"`
	Latency        figures.Summary `json:"latency"`
	WarmShare      float64         `json:"warmShare"`
	// CPU is milliseconds of processor time per call, by process.
	CPU           map[string]float64 `json:"cpuMillisecondsPerCall"`
	Writes        map[string]float64 `json:"writesPerCall"`
	WritesPerCall float64            `json:"allWritesPerCall"`
	Refused       int                `json:"refusedWrites"`
	Before        memory             `json:"before"`
	After         memory             `json:"after"`
}

// bareResult is what the same writes come to without an operator.
type bareResult struct {
	Calls          int                `json:"calls"`
	CallsPerSecond float64            `json:"callsPerSecond"`
	Latency        figures.Summary    `json:"latency"`
	CPU            map[string]float64 `json:"cpuMillisecondsPerCall"`
}

// cpuPerCall is what each process used between two looks, in milliseconds.
func cpuPerCall(before, after map[string]time.Duration, calls float64) map[string]float64 {
	used := map[string]float64{}
	for name, then := range before {
		if now, ok := after[name]; ok {
			used[name] = float64((now - then).Microseconds()) / 1000 / calls
		}
	}
	return used
}

// look is what an operator is like at one time.
type look struct {
	Memory    memory          `json:"memory"`
	Latency   figures.Summary `json:"latency"`
	WarmShare float64         `json:"warmShare"`
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

func newReport(args []string) *report {
	command := strings.TrimSpace("go run ./test/operatorbench " + strings.Join(args, " "))
	return &report{Time: time.Now(), Command: command, Commit: figures.Commit(), Cores: runtime.NumCPU(), Load: figures.Load()}
}

func newThroughput(part string, done *outcome, cpu map[string]float64, writes *figures.Writes, before, after memory) *throughput {
	calls := float64(len(done.latencies))
	t := &throughput{
		Part: part, Calls: len(done.latencies), CallsPerSecond: calls / done.took.Seconds(),
		Latency: figures.Summarize(done.latencies), WarmShare: float64(done.warm) / calls,
		CPU: cpu, Writes: map[string]float64{}, WritesPerCall: float64(writes.Total()) / calls, Refused: writes.Refused,
		Before: before, After: after,
	}
	for name, n := range writes.ByName {
		t.Writes[name] = float64(n) / calls
	}
	return t
}

func (r *report) print(out io.Writer, markdown bool) {
	fmt.Fprintf(out, "%s, commit %s, %.0f s\n%s\n%d cores; load before %s, after %s\n\n",
		r.Time.UTC().Format("2006-01-02T15:04:05Z"), r.Commit, r.Seconds, r.Command, r.Cores, r.Load, r.LoadAfter)
	r.partsTable().Print(out, markdown)
	r.cpuTable().Print(out, markdown)
	r.writesTable().Print(out, markdown)
	r.rememberedTable().Print(out, markdown)
	r.newCallsTable().Print(out, markdown)
}

func (r *report) partsTable() *figures.Table {
	t := &figures.Table{Header: []string{"operator alone", "calls", "calls/s", "p50 s", "p90 s", "p99 s", "went warm", "writes/call", "refused", "RSS before MiB", "after"}}
	for _, p := range r.Parts {
		t.Add(p.Part, fmt.Sprint(p.Calls), fmt.Sprintf("%.1f", p.CallsPerSecond),
			fmt.Sprintf("%.3f", p.Latency.P50), fmt.Sprintf("%.3f", p.Latency.P90), fmt.Sprintf("%.3f", p.Latency.P99),
			fmt.Sprintf("%.0f %%", 100*p.WarmShare), fmt.Sprintf("%.2f", p.WritesPerCall),
			fmt.Sprint(p.Refused), fmt.Sprintf("%.0f", p.Before.RSS), fmt.Sprintf("%.0f", p.After.RSS))
	}
	if b := r.Bare; b != nil {
		t.Add("the writes of cold calls, without an operator", fmt.Sprint(b.Calls), fmt.Sprintf("%.1f", b.CallsPerSecond),
			fmt.Sprintf("%.3f", b.Latency.P50), fmt.Sprintf("%.3f", b.Latency.P90), fmt.Sprintf("%.3f", b.Latency.P99), "", "", "", "", "")
	}
	return t
}

// cpuTable says who the machine's processors worked for.
func (r *report) cpuTable() *figures.Table {
	names := []string{processOperator, processServer, processEtcd, processBenchmark}
	t := &figures.Table{Header: append(append([]string{"CPU, milliseconds per call"}, names...), "all")}
	add := func(part string, used map[string]float64) {
		row, sum := []string{part}, 0.0
		for _, name := range names {
			text := ""
			if ms, ok := used[name]; ok {
				text = fmt.Sprintf("%.2f", ms)
			}
			row, sum = append(row, text), sum+used[name]
		}
		t.Add(append(row, fmt.Sprintf("%.2f", sum))...)
	}
	for _, p := range r.Parts {
		add(p.Part, p.CPU)
	}
	if r.Bare != nil {
		add("the writes of cold calls, without an operator", r.Bare.CPU)
	}
	return t
}

func (r *report) writesTable() *figures.Table {
	t := &figures.Table{Header: []string{"writes of the operator", "per call"}}
	for _, p := range r.Parts {
		w := &figures.Writes{ByName: map[string]int{}}
		for name := range p.Writes {
			w.ByName[name] = 1
		}
		for _, name := range w.Names() {
			t.Add(p.Part+": "+name, fmt.Sprintf("%.2f", p.Writes[name]))
		}
	}
	return t
}

// rememberedTable says what finished calls cost the operator, newCallsTable what they cost new calls.
func (r *report) rememberedTable() *figures.Table {
	t := &figures.Table{Header: []string{"finished calls there", "RSS MiB", "heap in use MiB", "heap allocated MiB", "ready after s", "knows them after s"}}
	if f := r.Finished; f != nil {
		row := func(calls int, m memory, started ...string) {
			t.Add(append([]string{fmt.Sprint(calls), fmt.Sprintf("%.0f", m.RSS), fmt.Sprintf("%.1f", m.HeapInUse), fmt.Sprintf("%.1f", m.HeapAlloc)}, started...)...)
		}
		row(0, f.Before.Memory, "", "")
		row(f.Calls, f.After.Memory, fmt.Sprintf("%.1f", f.ReadySeconds), fmt.Sprintf("%.1f", f.LearnedSeconds))
	}
	return t
}

func (r *report) newCallsTable() *figures.Table {
	t := &figures.Table{Header: []string{
		"finished calls there", "new calls p50 s", "p90 s", "p99 s", "went warm", "CPU ms/call, operator", "API server",
		"the writes alone p50 s", "p90 s", "p99 s",
	}}
	seconds := func(s figures.Summary) []string {
		return []string{fmt.Sprintf("%.3f", s.P50), fmt.Sprintf("%.3f", s.P90), fmt.Sprintf("%.3f", s.P99)}
	}
	if f := r.Finished; f != nil {
		row := func(calls int, l look) {
			t.Add(slices.Concat([]string{fmt.Sprint(calls)}, seconds(l.Latency), []string{
				fmt.Sprintf("%.0f %%", 100*l.WarmShare), fmt.Sprintf("%.2f", l.CPU[processOperator]), fmt.Sprintf("%.2f", l.CPU[processServer]),
			}, seconds(l.Bare))...)
		}
		row(0, f.Before)
		row(f.Calls, f.After)
	}
	return t
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
