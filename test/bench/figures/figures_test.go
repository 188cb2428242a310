package figures

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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

func TestTheAuditLogCountsOneUsersWritesByNamespace(t *testing.T) {
	t.Parallel()
	const line = `{"stage":"%STAGE","verb":"%VERB","requestReceivedTimestamp":"%TIME","user":{"username":"%USER"},"objectRef":{"resource":"%RES","subresource":"%SUB","namespace":"%NS"},"responseStatus":{"code":%CODE}}`
	event := func(changes ...string) string {
		text := line
		for i := 0; i < len(changes); i += 2 {
			text = strings.ReplaceAll(text, changes[i], changes[i+1])
		}
		return strings.NewReplacer("%STAGE", "ResponseComplete", "%VERB", "patch", "%TIME", "2026-01-01T00:00:05.000000Z",
			"%USER", "op", "%RES", "toolcalls", "%SUB", "status", "%NS", "warm", "%CODE", "200").Replace(text) + "\n"
	}
	now := event() + event() +
		event("%NS", "cold") +
		event("%CODE", "409") +
		event("%VERB", "get") +
		event("%USER", "kubelet and op") +
		event("%STAGE", "ResponseStarted") +
		event("%TIME", "2025-12-31T23:59:59.000000Z") +
		`{"user":{"username":"op"},"verb":"pat`
	dir := t.TempDir()
	for name, log := range map[string]string{
		"audit.log": now, "audit-2026-01-01.log": event("%VERB", "create", "%RES", "jobs", "%SUB", "", "%CODE", "201"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := &AuditLog{
		File: filepath.Join(dir, "audit.log"), User: "op", Since: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	got, err := a.Count()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*Writes{
		"warm": {ByName: map[string]float64{"patch toolcalls/status": 2, "create jobs": 1}, Refused: 1},
		"cold": {ByName: map[string]float64{"patch toolcalls/status": 1}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	each := got["warm"].PerCall(2)
	if each.Total() != 1.5 || each.Refused != 1 || !slices.Equal(each.Names(), []string{"create jobs", "patch toolcalls/status"}) {
		t.Errorf("per call they are %+v", each)
	}
	a.File = filepath.Join(dir, "none.log")
	if _, err := a.Count(); err == nil {
		t.Error("a log that isn't there has a count")
	}
}

func TestMetricsKeepTheirLabels(t *testing.T) {
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
	metrics, err := ReadMetrics(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"sent_total": 105, "used_bytes": 15e6, "untyped": 2, "took_seconds": 0, "used": 0} {
		if got := Sum(metrics, name); got != want {
			t.Errorf("%s is %v, not %v", name, got, want)
		}
	}
	if !slices.ContainsFunc(metrics, func(m Metric) bool { return m.Labels["method"] == "PATCH" && m.Value == 6 }) {
		t.Errorf("got %+v", metrics)
	}
	if _, err := ReadMetrics(strings.NewReader("{")); err == nil {
		t.Error("what is no page of metrics is read")
	}
}

func TestRatiosCompareFigureByFigure(t *testing.T) {
	t.Parallel()
	got := Summarize([]float64{2, 4, 9}).Over(Summarize([]float64{1, 2, 3, 3}))
	if diff := cmp.Diff(Summary{Count: 3, Min: 2, P50: 2, P90: 3, P99: 3, Max: 3}, got); diff != "" {
		t.Error(diff)
	}
	if cells := got.Cells(1000, 1); cells != "2000.0|3000.0|3000.0" {
		t.Errorf("the cells are %s", cells)
	}
}

func TestTablesComeAsTextAndAsMarkdown(t *testing.T) {
	t.Parallel()
	table := NewTable("a|b|c").Add("%s|%.1f|%d", "x", 1.04, 10)
	table.Above = "Above."
	for markdown, want := range map[bool]string{false: "Above.\n\n  a    b   c\n  x  1.0  10\n\n", true: "Above.\n\n| a | b | c |\n|---|---|---|\n| x | 1.0 | 10 |\n\n"} {
		out := new(strings.Builder)
		table.Print(out, markdown)
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Error(diff)
		}
	}
	out := new(strings.Builder)
	NewTable("a").Print(out, true)
	if out.Len() != 0 {
		t.Errorf("no rows print %q", out)
	}
}

func TestFlagsAreCheckedAsTheyAreRead(t *testing.T) {
	t.Parallel()
	n, rates, usage := 3, []float64{1, 2.5}, new(strings.Builder)
	var o Options
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	fs.SetOutput(usage)
	o.AddFlags(fs, "out.json", "a", "b")
	Add(fs, &n, "n", Between(1, 5), "a number")
	Add(fs, &rates, "rates", List(Between(0.5, 10)), "rates")
	if err := fs.Parse([]string{"-n", "5", "-rates", "4, 0.5", "-only", "b"}); err != nil || n != 5 || !slices.Equal(rates, []float64{4, 0.5}) || o.Has("a") || !o.Has("b") {
		t.Errorf("got %d, %v, %+v, %v", n, rates, o, err)
	}
	if err := fs.Parse([]string{"-rates", ""}); err != nil || len(rates) != 0 {
		t.Errorf("an empty list is %v, %v", rates, err)
	}
	for _, args := range [][]string{{"-n", "0"}, {"-n", "6"}, {"-n", "1.5"}, {"-n", ""}, {"-rates", "1,11"}, {"-rates", "NaN"}, {"-only", "c"}} {
		if err := fs.Parse(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	if err := fs.Parse([]string{"-h"}); !errors.Is(err, flag.ErrHelp) || !strings.Contains(usage.String(), "(default a,b)") {
		t.Errorf("%v; the defaults are not in\n%s", err, usage)
	}
}

func TestPartsRunInTheirOwnOrderUntilOneFails(t *testing.T) {
	t.Parallel()
	var ran []string
	part := func(name string, err error) Part {
		return Part{name, func(context.Context) error { ran = append(ran, name); return err }}
	}
	o := Options{Only: []string{"c", "b", "a"}}
	err := o.Measure(t.Context(), part("a", nil), part("left out", nil), part("b", errors.New("broken")), part("c", nil))
	if err == nil || err.Error() != "b: broken" || !slices.Equal(ran, []string{"a", "b"}) {
		t.Errorf("ran %v: %v", ran, err)
	}
}
