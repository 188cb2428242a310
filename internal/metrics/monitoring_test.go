package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"toolcall.dev/operator/api/v1alpha1"
)

var used = regexp.MustCompile(`\btoolcall_[a-z_]+`)

// exposed are the names of all metrics that a scrape finds.
func exposed(t *testing.T) map[string]bool {
	t.Helper()
	InFlight(func() int { return 0 })
	Queued(func() int { return 0 })
	Runners(func() int { return 0 })
	Reported(Recorded)
	ms := int64(1)
	Finished(&v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhaseSucceeded, Reason: v1alpha1.ReasonCompleted, Streams: &v1alpha1.StreamsStatus{},
		Timings: &v1alpha1.CallTimings{AcceptedMilliseconds: &ms, StartedMilliseconds: &ms, FinishedMilliseconds: &ms, Path: v1alpha1.PathWarm},
	})
	families, err := crmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, family := range families {
		names[family.GetName()] = true
	}
	return names
}

func TestEveryMetricOfTheDashboardAndTheAlertsExists(t *testing.T) {
	names := exposed(t)
	unused := map[string]bool{}
	for name := range names {
		if strings.HasPrefix(name, "toolcall_") {
			unused[name] = true
		}
	}
	for _, file := range []string{"dashboard.json", "rules.yaml"} {
		raw, err := os.ReadFile("../../config/monitoring/" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := used.FindAllString(string(raw), -1)
		if len(found) < 5 {
			t.Errorf("%s names %d metrics only", file, len(found))
		}
		for _, name := range found {
			name = strings.TrimSuffix(name, "_bucket")
			if !names[name] {
				t.Errorf("%s names %s, which nothing exposes", file, name)
			}
			delete(unused, name)
		}
	}
	for name := range unused {
		t.Errorf("nothing shows %s", name)
	}
}

var alert = regexp.MustCompile(`(?m)^\s+- alert: (\w+)$`)

// Whoever is woken by an alert finds out what it means and what to do.
func TestEveryAlertIsDocumented(t *testing.T) {
	rules, err := os.ReadFile("../../config/monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	alerts := alert.FindAllStringSubmatch(string(rules), -1)
	if len(alerts) < 5 {
		t.Errorf("only %d alerts were found", len(alerts))
	}
	for _, match := range alerts {
		if !strings.Contains(string(docs), "\n| `"+match[1]+"` | ") {
			t.Errorf("docs/operations.md says nothing of %s", match[1])
		}
	}
}

func TestTheDashboardIsJSON(t *testing.T) {
	raw, err := os.ReadFile("../../config/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct{ Panels []struct{ Title string } }
	if err := json.Unmarshal(raw, &dashboard); err != nil || len(dashboard.Panels) == 0 {
		t.Errorf("%v, %d panels", err, len(dashboard.Panels))
	}
}
