package calls

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/figures"
)

func TestACallIsOfTheSessionThatItsNameBeginsWith(t *testing.T) {
	t.Parallel()
	sessions := map[string]*v1alpha1.ToolSession{
		"s00": {ObjectMeta: metav1.ObjectMeta{Name: "s00", UID: "uid-0"}}, "s01": {ObjectMeta: metav1.ObjectMeta{Name: "s01", UID: "uid-1"}},
	}
	call := callsOf("n", sessions).Make("s01-00-000007").(*v1alpha1.ToolCall)
	want := &v1alpha1.SessionReference{Name: "s01", UID: "uid-1"}
	if diff := cmp.Diff(want, call.Spec.SessionRef); diff != "" || call.Spec.EnvironmentRef != nil || call.Namespace != "n" || call.Spec.Structured == nil {
		t.Errorf("%s in %+v", diff, call)
	}
}

func TestASessionIsReadyWhenACallWouldStartAtOnce(t *testing.T) {
	t.Parallel()
	session := func(phase v1alpha1.SessionPhase, ready metav1.ConditionStatus) *v1alpha1.ToolSession {
		return &v1alpha1.ToolSession{Status: v1alpha1.ToolSessionStatus{
			Phase: phase, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: ready}},
		}}
	}
	for _, c := range []struct {
		session    *v1alpha1.ToolSession
		done, fail bool
	}{
		{&v1alpha1.ToolSession{}, false, false},
		{session(v1alpha1.SessionPending, metav1.ConditionFalse), false, false},
		{session(v1alpha1.SessionReady, metav1.ConditionFalse), false, false},
		{session(v1alpha1.SessionReady, metav1.ConditionTrue), true, false},
		{session(v1alpha1.SessionEnded, metav1.ConditionFalse), false, true},
	} {
		if done, err := sessionReady(c.session); done != c.done || (err != nil) != c.fail {
			t.Errorf("%+v: %t, %v", c.session.Status, done, err)
		}
	}
}

func TestOnlyASessionWithAClaimIsSuspendedForIdleness(t *testing.T) {
	t.Parallel()
	kept := withWorkspace(sessionSpec(1), resource.MustParse("64Mi"))
	made := sessionsIn("n", kept).Make("kept").(*v1alpha1.ToolSession)
	if made.Spec.Workspace.Size.String() != "64Mi" || *made.Spec.IdleTimeoutSeconds != 1 {
		t.Errorf("got %+v", made.Spec)
	}
	if other := sessionSpec(3); other.Workspace != nil || *other.IdleTimeoutSeconds != 0 || *other.MaxConcurrentCalls != 3 {
		t.Errorf("got %+v", other)
	}
}

func TestOnlyCallsThatEndWithinTheWindowCount(t *testing.T) {
	t.Parallel()
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	l := &loops{clients: []string{"a", "b"}, each: map[string]int{"a": 3, "b": 1}, ended: []ending{{at(9.9), 9}, {at(10), 1}, {at(11), 2}, {at(12), 9}}}
	got := l.between(at(10), at(12))
	if got.Rate != 1 || got.Seconds != 2 || got.Latency.Count != 2 || got.Latency.Max != 2 || got.Clients != 2 {
		t.Errorf("got %+v", got)
	}
	if least, all := l.least(); least != 1 || all != 4 {
		t.Errorf("the client with the fewest has %d of %d", least, all)
	}
}

// reportOfSessions has every figure, just within its aim.
func reportOfSessions() *sessionReport {
	r := &sessionReport{
		FloorBefore: &loadResult{Clients: 32, Rate: 260}, FloorAfter: &loadResult{Clients: 32, Rate: 240},
		Sustained: &loadResult{Clients: 32, Rate: 150, Latency: figures.Summary{P99: 1}},
		Writes:    &writeReport{Calls: 10, PerCall: &figures.Writes{ByName: map[string]float64{"patch toolcalls/status": 1}}},
		Operator:  &operatorMemory{Sessions: 10, LiveBefore: 1000, LiveAfter: 1500},
		Runner:    &runnerMemory{Calls: 10, Before: 1024, After: 5 * 1024},
		Output:    &outputReport{Followers: 10, LiveBefore: 1000, LiveAfter: 1640, WritesKept: 1, WritesUnkept: 1},
		Transfer:  &transferReport{RSSBefore: 1024, RSSMost: 17 * 1024},
	}
	r.summarize(map[string][]float64{
		timeFloor: {0.007}, timeCall: {0.011}, timeWarmSession: {0.015}, timeCold: {0.5}, timeResume: {0.6}, timeJob: {3}, timeKubectl: {0.1},
		timeLive: {0.015}, timeRange: {0.01}, timeRangePod: {0.01}, timeKept: {0.011}, timeUnkept: {0.01},
		timeUp: {1}, timeCopyUp: {1}, timeDown: {2}, timeCopyDown: {2},
	})
	return r
}

func TestEachAimIsMetOrMissed(t *testing.T) {
	t.Parallel()
	for _, a := range reportOfSessions().aims() {
		if !a.met() {
			t.Errorf("%s is %v, and the aim is %v", a.figure, a.measured, a.aim)
		}
	}
	for title, change := range map[string]func(*sessionReport){
		"floor, p50":                                          func(r *sessionReport) { r.summarize(map[string][]float64{timeFloor: {0.008}}) },
		"floor, 32 at once":                                   func(r *sessionReport) { r.FloorAfter.Rate = 239 },
		"call in a ready session, p50":                        func(r *sessionReport) { r.Times[timeCall] = figures.Summary{Count: 1, P50: 0.012} },
		"call in a ready session, p99":                        func(r *sessionReport) { r.Times[timeCall] = figures.Summary{Count: 1, P99: 0.041} },
		"sustained, 32 clients":                               func(r *sessionReport) { r.Sustained.Rate = 149 },
		"sustained, 32 clients, p99":                          func(r *sessionReport) { r.Sustained.Latency.P99 = 1.1 },
		timeResume + ", p50":                                  func(r *sessionReport) { r.Times[timeResume] = figures.Summary{Count: 1, P50: 0.61} },
		timeWarmSession + ", p50":                             func(r *sessionReport) { r.Times[timeWarmSession] = figures.Summary{Count: 1, P50: 0.016} },
		"operator's writes for a short call":                  func(r *sessionReport) { r.Writes.PerCall.ByName["create jobs"] = 0.1 },
		"memory of the operator per idle":                     func(r *sessionReport) { r.Operator.LiveAfter++ },
		"memory of the runner, 10 calls":                      func(r *sessionReport) { r.Runner.After++ },
		timeLive + ", p50":                                    func(r *sessionReport) { r.Times[timeLive] = figures.Summary{Count: 1, P50: 0.016} },
		timeRange + ", p50":                                   func(r *sessionReport) { r.Times[timeRange] = figures.Summary{Count: 1, P50: 0.011} },
		timeKept + ", p50":                                    func(r *sessionReport) { r.Times[timeUnkept] = figures.Summary{Count: 1, P50: 0.009} },
		timeUp + ", p50":                                      func(r *sessionReport) { r.Times[timeCopyUp] = figures.Summary{Count: 1, P50: 0.9} },
		timeDown + ", p50":                                    func(r *sessionReport) { r.Times[timeDown] = figures.Summary{Count: 1, P50: 2.1} },
		"operator's writes for a short call, its output kept": func(r *sessionReport) { r.Output.WritesKept = 2 },
		"memory of the operator per follower, 10 at once":     func(r *sessionReport) { r.Output.LiveAfter++ },
		"resident memory of the operator while files":         func(r *sessionReport) { r.Transfer.RSSMost++ },
	} {
		r := reportOfSessions()
		change(r)
		var missed []string
		for _, a := range r.aims() {
			if !a.met() {
				missed = append(missed, a.figure)
			}
		}
		if len(missed) != 1 || !strings.HasPrefix(missed[0], title) {
			t.Errorf("%s: missed are %q", title, missed)
		}
	}
}

func TestWhatWasNotMeasuredHasNoAim(t *testing.T) {
	t.Parallel()
	r := &sessionReport{}
	r.summarize(map[string][]float64{timeResume: {1}, timeCall: {1}})
	if aims := r.aims(); len(aims) != 0 {
		t.Errorf("without a floor and a cold call there are %+v", aims)
	}
	if tables := (*sessionReport)(nil).tables(); tables != nil {
		t.Errorf("without sessions there are %v", tables)
	}
}

func TestAPartThatFailsCostsNoOtherItsFigures(t *testing.T) {
	t.Parallel()
	c := &Command{report: Report{Sessions: reportOfSessions()}}
	if err := c.Verdict(); err != nil {
		t.Error(err)
	}
	c.report.Sessions.fail(sessionsResume, errors.New("no claim | no volume"))
	if err := c.Verdict(); err == nil || !strings.Contains(err.Error(), "sessions, resume: no claim") {
		t.Errorf("got %v", err)
	}
	out := new(strings.Builder)
	figures.Print(out, &c.report, true)
	for _, want := range []string{"| resume | no claim / no volume |", "| kubectl exec | 1 | 100.0 |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

func TestTheTablesOfSessionsSurviveTheirFile(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(&Report{Sessions: reportOfSessions()})
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{}
	if err := json.Unmarshal(raw, r); err != nil {
		t.Fatal(err)
	}
	out := new(strings.Builder)
	figures.Print(out, r, true)
	for _, want := range []string{
		"| call in a ready session, p50 | ≤ 11.0 ms (floor + 4) | 11.0 ms | 1.00 | met |",
		"| sustained, 32 clients | ≥ 150.0 /s (0.6 × floor) | 150.0 /s | 1.00 | met |",
		"| kubectl exec | 1 | 100.0 |", "| bare Job | 1 | 3000.0 |", "| floor, after | 32 |", "| patch toolcalls/status | 1.00 |",
		"| operator, live, with 10 idle sessions | 0.98 | 1.46 |", "| runner, resident, after 10 calls (0/s) | 1.00 | 5.00 |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

func TestLiveMemoryIsWorkedOutFromTheNextCollection(t *testing.T) {
	t.Parallel()
	const page = `# TYPE go_memstats_next_gc_bytes gauge
go_memstats_next_gc_bytes 2.1504e+07
# TYPE go_memstats_stack_inuse_bytes gauge
go_memstats_stack_inuse_bytes 1.024e+06
# TYPE go_memstats_last_gc_time_seconds gauge
go_memstats_last_gc_time_seconds 12.5
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 2.048e+07
`
	got, err := readGoMemory([]byte(page))
	if want := (goMemory{live: 11000, rss: 20000, collections: 12.5}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := readGoMemory([]byte(strings.ReplaceAll(page, "next_gc_bytes", "other"))); err == nil {
		t.Error("a page without the figures is believed")
	}
}

func TestResidentMemoryIsReadFromTheProcess(t *testing.T) {
	t.Parallel()
	if got, err := readResident([]byte("Name:\trunner\nVmHWM:\t    9000 kB\nVmRSS:\t    6789 kB\nRssAnon:\t 1 kB\n")); err != nil || got != 6789 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := readResident([]byte("Name:\tkthreadd\n")); err == nil {
		t.Error("a process without memory has some")
	}
}

func TestTheWritesOfASessionsCallAreThoseInItsNamespace(t *testing.T) {
	t.Parallel()
	r := measured()
	b := &sessionBench{run: r}
	if _, err := b.writesOfSession("n", time.Time{}); err == nil {
		t.Error("an operator that ended no call is believed")
	}
	r.activities[sessionsWrites] = &activity{writes: figures.Writes{ByName: map[string]float64{"PATCH": 4}}, finished: 4}
	got, err := b.writesOfSession("n", time.Time{})
	if err != nil || got.PerCall.Total() != 1 || got.Calls != 4 {
		t.Errorf("got %+v, %v", got, err)
	}
	r.auditLog = writeAuditLog(t, strings.Repeat(auditLine("n"), writesOf)+auditLine("other"))
	got, err = b.writesOfSession("n", time.Time{})
	if err != nil || got.PerCall.Total() != 1 || got.Source != "audit log" {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := b.writesOfSession("none", time.Time{}); err == nil {
		t.Error("calls without a single write are believed")
	}
}

func TestPartsOfSessionsAreChosen(t *testing.T) {
	t.Parallel()
	var c Command
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	c.AddFlags(fs)
	b := &sessionBench{run: &run{Command: &c}}
	for _, part := range allSessionParts {
		if !b.measures(part) {
			t.Errorf("%s isn't measured by default", part)
		}
	}
	if err := fs.Parse([]string{"-only", "sessions", "-session-parts", "resume,alone"}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(b.measures(sessionsAlone), b.measures(sessionsResume), b.measures(sessionsRunner), c.Has(partRounds)); got != "true true false false" {
		t.Errorf("got %s", got)
	}
}

func TestEachLineSaysHowLongItTook(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(-time.Second).UnixNano()
	got, err := delays(strings.NewReader(fmt.Sprintf("%d\n%d\n", at, at)))
	if err != nil || len(got) != 2 || got[0] < 1 || got[1] < got[0] {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := delays(strings.NewReader("Traceback\n")); err == nil {
		t.Error("a line without a time is believed")
	}
}
