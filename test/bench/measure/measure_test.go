package measure

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPercentilesAreMeasuredValues(t *testing.T) {
	t.Parallel()
	var values []float64
	for i := 30; i > 0; i-- {
		values = append(values, float64(i))
	}
	want := Summary{Count: 30, Min: 1, P50: 15, P90: 27, P99: 30, Max: 30}
	if diff := cmp.Diff(want, Summarize(values)); diff != "" {
		t.Error(diff)
	}
	if values[0] != 30 {
		t.Error("the values were put into another order")
	}
	if diff := cmp.Diff(Summary{}, Summarize(nil)); diff != "" {
		t.Error(diff)
	}
	if one := Summarize([]float64{1000}); one.P50 != 1000 || one.P99 != 1000 {
		t.Errorf("of a single value every percentile is that value, not %+v", one)
	}
}

// story notes what scenarios do.
type story []string

// scenario takes as many seconds as it is told.
func (s *story) scenario(name string, each, seconds int) *Scenario {
	note := func(what string) func(context.Context) error {
		return func(context.Context) error {
			*s = append(*s, what+" "+name)
			return nil
		}
	}
	return &Scenario{
		Name: name, Each: each, Prepare: note("prepare"), Clear: note("clear"),
		Operate: func(ctx context.Context, n int) error {
			*s = append(*s, fmt.Sprint(name, n))
			return Pause(ctx, time.Duration(seconds)*time.Second)
		},
	}
}

func TestScenariosTakeTurnsAndOnlyOperationsAreMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s story
		often, once := s.scenario("often", 2, 1), s.scenario("once", 0, 4)
		clear := often.Clear
		often.Clear = func(ctx context.Context) error { return errors.Join(clear(ctx), Pause(ctx, time.Hour)) }
		once.Against = []string{"often", "nothing"}
		r := NewReport("", new(strings.Builder))
		if err := r.InTurns(t.Context(), "p", 2, often, once); err != nil {
			t.Fatal(err)
		}
		want := story{
			"prepare often", "prepare once",
			"often0", "clear often", "once0", "clear once", "often1", "clear often",
			"often2", "clear often", "once1", "clear once", "often3", "clear often",
		}
		if diff := cmp.Diff(want, s); diff != "" {
			t.Error(diff)
		}
		rows := []*Row{
			{Part: "p", Name: "often", Unit: "s", Summary: Summary{4, 1, 1, 1, 1, 1}},
			{Part: "p", Name: "once", Unit: "s", Summary: Summary{2, 4, 4, 4, 4, 4}, Against: []Comparison{{"often", 4, 3}}},
		}
		if diff := cmp.Diff(rows, r.Rows); diff != "" {
			t.Error(diff)
		}
	})
}

func TestManyCallsHaveARateAndWhatEachOfThemUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s story
		many, used := s.scenario("many", 1, 2), 100.0
		many.Calls, many.Settle = 10, time.Second
		many.Spent = func() (Counts, error) { return Counts{"writes": used}, nil }
		operate := many.Operate
		many.Operate = func(ctx context.Context, n int) error {
			time.AfterFunc(2500*time.Millisecond, func() { used += 30 })
			return operate(ctx, n)
		}
		many.Clear = func(context.Context) error { used += 1000; return nil }
		r := NewReport("", new(strings.Builder))
		if err := r.InTurns(t.Context(), "p", 2, many); err != nil {
			t.Fatal(err)
		}
		rows := []*Row{
			{Part: "p", Name: "many", Unit: "calls/s", Summary: Summary{2, 5, 5, 5, 5, 5}},
			{Part: "p", Name: "many", Unit: "writes/call", Summary: Summary{1, 3, 3, 3, 3, 3}},
		}
		if diff := cmp.Diff(rows, r.Rows); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWhatWasMeasuredBeforeAFailureIsReported(t *testing.T) {
	t.Parallel()
	var s story
	good, bad := s.scenario("good", 1, 0), s.scenario("bad", 1, 0)
	bad.Operate = func(context.Context, int) error { return errors.New("broken") }
	r := NewReport("", new(strings.Builder))
	err := r.InTurns(t.Context(), "p", 3, good, bad)
	if err == nil || err.Error() != "bad, operation 1: broken" || len(r.Rows) != 1 || r.Rows[0].Count != 1 {
		t.Errorf("%v, %+v", err, r.Rows)
	}
}

func TestAReportIsATableAndAFile(t *testing.T) {
	t.Parallel()
	r := NewReport("the command", new(strings.Builder))
	r.Add("calls", "floor", "s", []float64{0.004})
	r.Add("calls", "session", "s", []float64{0.012, 0.008, 0.01}, "floor", "not measured")
	r.Add("memory", "operator", "MiB", []float64{52.125}, "floor")
	r.Fail("memory", errors.New("no pod"))
	r.End()
	out := new(strings.Builder)
	if err := r.Print(out); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{
		"the command", "calls n min p50 p90 p99 max", "floor ms 1 4.00", "session ms 3 8.00 10.00 12.00 12.00 12.00 2.500 × floor (+6.00)", "operator MiB 1 52.12",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if err := r.Err(); err == nil || err.Error() != "memory: no pod" {
		t.Errorf("got %v", err)
	}
	file := filepath.Join(t.TempDir(), "new", "saved.json")
	if err := errors.Join(r.Save(file), r.Save("")); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	again := &Report{}
	if err = errors.Join(err, json.Unmarshal(raw, again)); err != nil || again.Command != "the command" || !cmp.Equal(again.Rows, r.Rows) {
		t.Errorf("%v\n%s", err, raw)
	}
}

func TestTheAuditLogCountsOneUsersWritesByNamespace(t *testing.T) {
	t.Parallel()
	const line = `{"stage":"%STAGE","verb":"%VERB","user":{"username":"%USER"},"objectRef":{"resource":"%RES","subresource":"%SUB","namespace":"%NS"},"responseStatus":{"code":%CODE}}`
	event := func(changes ...string) string {
		text := line
		for i := 0; i < len(changes); i += 2 {
			text = strings.ReplaceAll(text, changes[i], changes[i+1])
		}
		return strings.NewReplacer("%STAGE", "ResponseComplete", "%VERB", "patch",
			"%USER", "op", "%RES", "toolcalls", "%SUB", "status", "%NS", "warm", "%CODE", "200").Replace(text) + "\n"
	}
	a := &AuditLog{File: filepath.Join(t.TempDir(), "audit.log"), User: "op"}
	if _, err := a.Count("warm"); err == nil {
		t.Error("a log that isn't there has a count")
	}
	log := event() + event("%NS", "cold") + event("%CODE", "409") + event("%VERB", "get") + event("%USER", "kubelet and op") + event("%STAGE", "ResponseStarted")
	last := event("%VERB", "create", "%RES", "jobs", "%SUB", "", "%CODE", "201")
	for _, c := range []struct {
		log  string
		want Counts
	}{
		{log + last[:20], Counts{UnitWrites: 1, UnitRefused: 1, "patch toolcalls/status": 1}},
		{log + last, Counts{UnitWrites: 2, UnitRefused: 1, "patch toolcalls/status": 1, "create jobs": 1}},
	} {
		if err := os.WriteFile(a.File, []byte(c.log), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := a.Count("warm")
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s, %v", diff, err)
		}
	}
	if none, err := a.Count("none"); err != nil || len(none) != 0 {
		t.Errorf("got %v, %v", none, err)
	}
}

func TestMetricsAreSums(t *testing.T) {
	t.Parallel()
	const page = `# HELP sent_total Requests.
# TYPE sent_total counter
sent_total{method="GET"} 99
sent_total{method="PATCH"} 6
# TYPE used_bytes gauge
used_bytes 1.5e+07
untyped 2
# TYPE took_seconds histogram
took_seconds_bucket{le="+Inf"} 3
took_seconds_sum 4
took_seconds_count 3
`
	got, err := ReadMetrics([]byte(page))
	want := map[string]float64{"sent_total": 105, "used_bytes": 15e6, "untyped": 2, "took_seconds": 0}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%s, %v", diff, err)
	}
	if _, err := ReadMetrics([]byte("{")); err == nil {
		t.Error("what is no page of metrics is read")
	}
}

func TestPartsAreChosen(t *testing.T) {
	t.Parallel()
	var o Options
	usage, fs := new(strings.Builder), flag.NewFlagSet("test", flag.ContinueOnError)
	fs.SetOutput(usage)
	o.AddFlags(fs, "out.json", []Part{{Name: "a"}, {Name: "b"}, {Name: "c"}})
	if !slices.Equal(o.Only, []string{"a", "b", "c"}) {
		t.Errorf("got %+v", o)
	}
	if err := fs.Parse([]string{"-only", "c,a"}); err != nil || !slices.Equal(o.Only, []string{"c", "a"}) || o.JSON != "out.json" {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, part := range []string{"d", "", "a b", "a,"} {
		if err := fs.Parse([]string{"-only", part}); err == nil {
			t.Errorf("%q is accepted", part)
		}
	}
	if err := fs.Parse([]string{"-h"}); !errors.Is(err, flag.ErrHelp) || !strings.Contains(usage.String(), "(default a,b,c)") {
		t.Errorf("%v; the defaults are not in\n%s", err, usage)
	}
}

func TestPartsRunInTheirOwnOrderAndAFailureCostsNoOtherItsFigures(t *testing.T) {
	t.Parallel()
	var ran []string
	ctx, cancel := context.WithCancel(t.Context())
	part := func(name string, err error, then func()) Part {
		return Part{name, func(context.Context) error { ran = append(ran, name); then(); return err }}
	}
	r, nothing := NewReport("", new(strings.Builder)), func() {}
	o := Options{Only: []string{"d", "c", "b", "a"}}
	err := o.Measure(ctx, r, []Part{
		part("a", nil, nothing), part("left out", nil, nothing), part("b", errors.New("broken"), nothing), part("c", nil, cancel), part("d", nil, nothing),
	})
	if !errors.Is(err, context.Canceled) || !slices.Equal(ran, []string{"a", "b", "c"}) || r.Failed["b"] != "broken" {
		t.Errorf("ran %v: %v, %v", ran, err, r.Failed)
	}
}
