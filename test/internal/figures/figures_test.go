package figures

import (
	"os"
	"path/filepath"
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

func TestTheAuditLogCountsOneUsersWritesByGroup(t *testing.T) {
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
		event("%VERB", "create", "%RES", "subjectaccessreviews", "%SUB", "", "%NS", "") +
		event("%CODE", "409") +
		event("%VERB", "get") +
		event("%NS", "other") +
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
		Groups: map[string]string{"warm": "Warm", "cold": "Cold"},
	}
	got, err := a.Count()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*Writes{
		"Warm": {ByName: map[string]int{"patch toolcalls/status": 2, "create jobs": 1}, Refused: 1},
		"Cold": {ByName: map[string]int{"patch toolcalls/status": 1}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got["Warm"].Total() != 3 {
		t.Errorf("the total is %d", got["Warm"].Total())
	}
	a.File = filepath.Join(dir, "none.log")
	if _, err := a.Count(); err == nil {
		t.Error("a log that isn't there has a count")
	}
}

func TestTablesComeAsTextAndAsMarkdown(t *testing.T) {
	t.Parallel()
	table := &Table{Header: []string{"a", "b"}}
	table.Add("x", "10")
	for markdown, want := range map[bool]string{false: "  a   b\n  x  10\n\n", true: "| a | b |\n|---|---|\n| x | 10 |\n\n"} {
		out := new(strings.Builder)
		table.Print(out, markdown)
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Error(diff)
		}
	}
	out := new(strings.Builder)
	(&Table{Header: []string{"a"}}).Print(out, true)
	if out.Len() != 0 {
		t.Errorf("no rows print %q", out)
	}
}
