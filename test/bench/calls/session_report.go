package calls

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"toolcall.dev/operator/test/bench/figures"
)

// What is measured one at a time.
const (
	timeFloor       = "floor: a call's object created, one status patch by another client, its end seen"
	timeCall        = "call in a ready session"
	timeWarm        = "warm call"
	timeJob         = "bare Job"
	timeKubectl     = "kubectl exec"
	timeWebSocket   = "exec from this process (WebSocket)"
	timeSPDY        = "exec from this process (SPDY)"
	timeWarmSession = "session from a warm pool, until it takes calls"
	timeColdSession = "session with a pod of its own, until it takes calls"
	timeResume      = "call that wakes a suspended session with a claim"
	timeCold        = "cold call"

	timeFilesFloor = "floor, beside files"
	timeTrue       = "true in a ready session, beside files"
	timeRead       = "Read of 500 lines"
	timePart       = "Read of 20 lines"
	timeList       = "List"
	timeStat       = "Stat"
	timeWrite      = "Write of 500 lines"
	timePython     = "Python that reads 500 lines"

	timeLive     = "line of a call's output, from the write to the reader"
	timePodLogs  = "line of a bare pod's log, from the write to the reader of kubectl logs -f"
	timeRange    = "64 KiB of an ended call's output, from the output store"
	timeRangePod = "64 KiB of an ended call's output, from its session"
	timeKept     = "call in a ready session, its output kept"
	timeUnkept   = "call in a ready session, its output not kept"

	timeUp       = "100 MiB up into a session, kubectl toolcall cp"
	timeCopyUp   = "100 MiB up into a bare pod, kubectl cp"
	timeDown     = "100 MiB down from a session, kubectl toolcall cp"
	timeCopyDown = "100 MiB down from a bare pod, kubectl cp"
)

var allTimes = []string{
	timeFloor, timeCall, timeWarm, timeJob, timeKubectl, timeWebSocket, timeSPDY, timeWarmSession, timeColdSession, timeResume, timeCold,
	timeFilesFloor, timeTrue, timeRead, timePart, timeList, timeStat, timeWrite, timePython,
	timeLive, timePodLogs, timeRange, timeRangePod, timeKept, timeUnkept, timeUp, timeCopyUp, timeDown, timeCopyDown,
}

// sessionReport is what was measured of sessions. What wasn't measured is nil, or has no samples.
type sessionReport struct {
	// Times are in seconds, by what they are of.
	Times       map[string]figures.Summary `json:"times"`
	FloorBefore *loadResult                `json:"floorBefore,omitempty"`
	Sustained   *loadResult                `json:"sustained,omitempty"`
	FloorAfter  *loadResult                `json:"floorAfter,omitempty"`
	Writes      *writeReport               `json:"operatorWrites,omitempty"`
	Operator    *operatorMemory            `json:"operatorMemory,omitempty"`
	Runner      *runnerMemory              `json:"runnerMemory,omitempty"`
	Output      *outputReport              `json:"output,omitempty"`
	Transfer    *transferReport            `json:"transfer,omitempty"`
	// Failed says why parts could not be measured to their end.
	Failed map[string]string `json:"failed,omitempty"`
}

func (r *sessionReport) fail(part string, err error) {
	if r.Failed == nil {
		r.Failed = map[string]string{}
	}
	r.Failed[part] = err.Error()
}

// verdict says which parts failed.
func (r *sessionReport) verdict() error {
	if r == nil {
		return nil
	}
	var failures []error
	for _, part := range slices.Sorted(maps.Keys(r.Failed)) {
		failures = append(failures, fmt.Errorf("sessions, %s: %s", part, r.Failed[part]))
	}
	return errors.Join(failures...)
}

func (r *sessionReport) summarize(values map[string][]float64) {
	r.Times = map[string]figures.Summary{}
	for title, seconds := range values {
		r.Times[title] = figures.Summarize(seconds)
	}
}

// floorRate is the floor's with many at once; 0 when it wasn't measured.
func (r *sessionReport) floorRate() float64 {
	if r.FloorBefore == nil || r.FloorAfter == nil {
		return 0
	}
	return (r.FloorBefore.Rate + r.FloorAfter.Rate) / 2
}

// aim is a figure that is to be reached.
type aim struct {
	figure, unit string
	// aim is the most that it may be, or the least when atLeast.
	aim, measured float64
	atLeast       bool
	// from says what the aim was worked out from, in the same run.
	from string
}

func (a aim) met() bool {
	if a.atLeast {
		return a.measured >= a.aim
	}
	return a.measured <= a.aim
}

const (
	// What the session's figures are to be, beside the floor, a cold call, or by themselves; times in milliseconds.
	aimFloor       = 7
	aimFloorRate   = 250
	aimOverFloor   = 4
	aimCallP99     = 40
	aimOfFloorRate = 0.6
	aimRate        = 120
	aimRateP99     = 1000
	aimWrites      = 1
	aimWarmSession = 15
	aimOfColdCall  = 1.2
	aimFile        = 10
	aimOperatorKiB = 50
	aimRunnerMiB   = 4
	aimLive        = 15
	aimRange       = 10
	aimFollowerKiB = 64
	aimFlatMiB     = 16
	// aimNoise is how much two medians of the same thing may differ in one run.
	aimNoise        = 1.1
	millisPerSecond = 1000
)

// aims are those of the figures that were measured.
func (r *sessionReport) aims() []aim {
	var aims []aim
	time := func(title string) (p50, p99 float64, measured bool) {
		s := r.Times[title]
		return millisPerSecond * s.P50, millisPerSecond * s.P99, s.Count > 0
	}
	floor, _, hasFloor := time(timeFloor)
	if hasFloor {
		aims = append(aims, aim{figure: "floor, p50", unit: "ms", aim: aimFloor, measured: floor})
	}
	if rate := r.floorRate(); rate > 0 {
		aims = append(aims, aim{figure: fmt.Sprintf("floor, %d at once", floorClients), unit: "/s", aim: aimFloorRate, measured: rate, atLeast: true})
	}
	if p50, p99, ok := time(timeCall); ok && hasFloor {
		aims = append(aims, aim{figure: timeCall + ", p50", unit: "ms", aim: floor + aimOverFloor, measured: p50, from: fmt.Sprintf("floor + %d", aimOverFloor)},
			aim{figure: timeCall + ", p99", unit: "ms", aim: aimCallP99, measured: p99})
	}
	aims = append(aims, r.sustainedAims()...)
	if w := r.Writes; w != nil {
		aims = append(aims, aim{figure: "operator's writes for a short call", aim: aimWrites, measured: w.PerCall.Total()})
	}
	if p50, _, ok := time(timeWarmSession); ok {
		aims = append(aims, aim{figure: timeWarmSession + ", p50", unit: "ms", aim: aimWarmSession, measured: p50})
	}
	for _, title := range []string{timePart, timeList, timeStat} {
		if p50, _, ok := time(title); ok {
			aims = append(aims, aim{figure: title + ", p50", unit: "ms", aim: aimFile, measured: p50})
		}
	}
	cold, _, hasCold := time(timeCold)
	if p50, _, ok := time(timeResume); ok && hasCold {
		aims = append(aims, aim{figure: timeResume + ", p50", unit: "ms", aim: aimOfColdCall * cold, measured: p50, from: fmt.Sprintf("%.1f × cold call", aimOfColdCall)})
	}
	if m := r.Operator; m != nil {
		aims = append(aims, aim{figure: "memory of the operator per idle session", unit: "KiB", aim: aimOperatorKiB, measured: m.PerSession()})
	}
	if m := r.Runner; m != nil {
		aims = append(aims, aim{figure: fmt.Sprintf("memory of the runner, %d calls later, above the start", m.Calls), unit: "MiB", aim: aimRunnerMiB, measured: (m.After - m.Before) / kibi})
	}
	return append(aims, r.outputAims()...)
}

func (r *sessionReport) sustainedAims() []aim {
	s := r.Sustained
	if s == nil {
		return nil
	}
	title := fmt.Sprintf("sustained, %d clients", s.Clients)
	var aims []aim
	if floor := r.floorRate(); floor > 0 {
		aims = append(aims, aim{
			figure: title, unit: "/s", aim: aimOfFloorRate * floor, measured: s.Rate, atLeast: true, from: fmt.Sprintf("%.1f × floor", aimOfFloorRate),
		})
	}
	return append(aims, aim{figure: title, unit: "/s", aim: aimRate, measured: s.Rate, atLeast: true},
		aim{figure: title + ", p99", unit: "ms", aim: aimRateP99, measured: millisPerSecond * s.Latency.P99})
}

// outputAims are those of output and of files up and down.
func (r *sessionReport) outputAims() (aims []aim) {
	add := func(title string, most float64, from string) {
		if s := r.Times[title]; s.Count > 0 && most > 0 {
			aims = append(aims, aim{figure: title + ", p50", unit: "ms", aim: most, measured: millisPerSecond * s.P50, from: from})
		}
	}
	median := func(title string) float64 { return millisPerSecond * r.Times[title].P50 }
	add(timeLive, aimLive, "")
	add(timeRange, aimRange, "")
	add(timeRangePod, aimRange, "")
	add(timeKept, aimNoise*median(timeUnkept), fmt.Sprintf("%.1f × not kept", aimNoise))
	add(timeUp, median(timeCopyUp), "kubectl cp")
	add(timeDown, median(timeCopyDown), "kubectl cp")
	if o := r.Output; o != nil && o.Followers > 0 && o.LiveAfter > 0 {
		aims = append(aims, aim{figure: fmt.Sprintf("memory of the operator per follower, %d at once", o.Followers), unit: "KiB", aim: aimFollowerKiB, measured: o.PerFollower()})
	}
	if o := r.Output; o != nil && o.WritesUnkept > 0 {
		aims = append(aims, aim{figure: "operator's writes for a short call, its output kept", aim: o.WritesUnkept, measured: o.WritesKept, from: "not kept"})
	}
	if x := r.Transfer; x != nil && x.RSSMost > 0 {
		aims = append(aims, aim{figure: "resident memory of the operator while files go up and down, above before", unit: "MiB", aim: aimFlatMiB, measured: (x.RSSMost - x.RSSBefore) / kibi})
	}
	return aims
}

// tables are the figures as tables; none without any.
func (r *sessionReport) tables() []*figures.Table {
	if r == nil {
		return nil
	}
	tables := []*figures.Table{r.aimsTable(), r.timesTable(), r.loadTable()}
	if r.Writes != nil {
		tables = append(tables, r.Writes.table("call in a ready session"))
	}
	return append(tables, r.memoryTable(), r.failedTable())
}

func (r *sessionReport) failedTable() *figures.Table {
	t := figures.NewTable("not measured to its end|why")
	for _, part := range slices.Sorted(maps.Keys(r.Failed)) {
		t.Add("%s|%s", part, strings.NewReplacer("|", "/", "\n", " ").Replace(r.Failed[part]))
	}
	return t
}

func (r *sessionReport) aimsTable() *figures.Table {
	t := figures.NewTable("sessions|aim|measured|measured / aim|")
	for _, a := range r.aims() {
		bound, verdict := "≤", "missed"
		if a.atLeast {
			bound = "≥"
		}
		if a.met() {
			verdict = "met"
		}
		wanted := fmt.Sprintf("%s %.1f %s", bound, a.aim, a.unit)
		if a.from != "" {
			wanted += " (" + a.from + ")"
		}
		t.Add("%s|%s|%.1f %s|%.2f|%s", a.figure, wanted, a.measured, a.unit, a.measured/a.aim, verdict)
	}
	return t
}

func (r *sessionReport) timesTable() *figures.Table {
	t := figures.NewTable("one at a time, milliseconds|n|min|p50|p90|p99|max|p50 / floor")
	floor := r.Times[timeFloor].P50
	for _, title := range allTimes {
		s := r.Times[title]
		if s.Count == 0 {
			continue
		}
		ratio := ""
		if floor > 0 {
			ratio = fmt.Sprintf("%.1f", s.P50/floor)
		}
		t.Add("%s|%d|%.1f|%s|%.1f|%s", title, s.Count, millisPerSecond*s.Min, s.Cells(millisPerSecond, 1), millisPerSecond*s.Max, ratio)
	}
	return t
}

func (r *sessionReport) loadTable() *figures.Table {
	t := figures.NewTable("sustained, milliseconds|clients|seconds|calls/s|n|p50|p90|p99|deleted meanwhile")
	for _, row := range []struct {
		title string
		load  *loadResult
	}{{"floor, before", r.FloorBefore}, {"calls in sessions", r.Sustained}, {"floor, after", r.FloorAfter}} {
		if l := row.load; l != nil {
			t.Add("%s|%d|%.0f|%.1f|%d|%s|%d", row.title, l.Clients, l.Seconds, l.Rate, l.Latency.Count, l.Latency.Cells(millisPerSecond, 1), l.Deleted)
		}
	}
	return t
}

func (r *sessionReport) memoryTable() *figures.Table {
	t := figures.NewTable("memory, MiB|before|after")
	if m := r.Operator; m != nil {
		t.Add("operator, live, with %d idle sessions|%.2f|%.2f", m.Sessions, m.LiveBefore/kibi, m.LiveAfter/kibi)
		t.Add("operator, resident, with %d idle sessions|%.1f|%.1f", m.Sessions, m.RSSBefore/kibi, m.RSSAfter/kibi)
	}
	if o := r.Output; o != nil {
		t.Add("operator, all replicas, live, with %d followers|%.2f|%.2f", o.Followers, o.LiveBefore/kibi, o.LiveAfter/kibi)
		t.Add("operator, all replicas, resident, with %d followers|%.1f|%.1f", o.Followers, o.RSSBefore/kibi, o.RSSAfter/kibi)
	}
	if x := r.Transfer; x != nil {
		t.Add("operator, all replicas, live, after files of 100 MiB|%.2f|%.2f", x.LiveBefore/kibi, x.LiveAfter/kibi)
		t.Add("operator, all replicas, resident, most while they were on their way|%.1f|%.1f", x.RSSBefore/kibi, x.RSSMost/kibi)
	}
	if m := r.Runner; m != nil {
		t.Add("runner, resident, after %d calls (%.0f/s)|%.2f|%.2f", m.Calls, m.Rate, m.Before/kibi, m.After/kibi)
	}
	return t
}
