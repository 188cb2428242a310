package metrics

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"toolcall.dev/operator/api/v1alpha1"
)

var used = regexp.MustCompile(`\btoolcall_[a-z_]+`)

var registerAll = sync.OnceFunc(func() {
	RegisterCallsInFlight(func() Counts { return Counts{{Namespace: "n", Name: "absent"}: 3} })
	RegisterCallsQueued(func() Counts { return Counts{{Namespace: "n"}: 2} })
	RegisterRequestLimit(1000)
	RegisterRunnerConnections(func() int { return 1 })
	RegisterSessions(func() map[v1alpha1.SessionPhase]Counts {
		return map[v1alpha1.SessionPhase]Counts{v1alpha1.SessionPending: {{Namespace: "n"}: 3, {Namespace: "m", Name: "e"}: 4}, v1alpha1.SessionSuspended: {{}: 9}}
	})
	RegisterClockSkew(func() time.Duration { return -1500 * time.Millisecond }, func() time.Duration { return 2 * time.Second })
})

// gather returns the operator's metrics by name, with at least one value of each.
func gather(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	registerAll()
	CountReport(ReportRecorded)
	CountStoreError(StoreWrite)
	env := types.NamespacedName{Namespace: "gathered", Name: "tools"}
	SetEnvironment(env, State{Ready: true, PoolReady: 1, PoolDesired: 2})
	defer ForgetEnvironment(env)
	CountPoolCreated(env)
	CountStored("n", &v1alpha1.ToolCallStatus{}, string(v1alpha1.StreamComplete), 7)
	CountFinished("n", &v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhaseSucceeded, Reason: v1alpha1.ReasonCompleted, Streams: &v1alpha1.StreamsStatus{},
		Refused: []v1alpha1.RefusedProgram{{Path: "/usr/bin/curl", Count: 2, Rule: "NotListed"}},
		Timings: &v1alpha1.CallTimings{FinishedMilliseconds: ptr.To[int64](1)},
	})
	CountSessionEnded("n", &v1alpha1.ToolSessionStatus{Reason: v1alpha1.ReasonEndRequested})
	CountSessionReady("n", &v1alpha1.ToolSessionStatus{Timings: &v1alpha1.SessionTimingsStatus{ReadyMilliseconds: ptr.To[int64](1), Path: v1alpha1.PathCold}})
	families, err := crmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]*dto.MetricFamily{}
	for _, family := range families {
		if strings.HasPrefix(family.GetName(), "toolcall_") {
			ours[family.GetName()] = family
		}
	}
	return ours
}

func TestEveryMetricOfTheDashboardAndTheAlertsExists(t *testing.T) {
	exposed := gather(t)
	unused := maps.Clone(exposed)
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
			name = strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
			if exposed[name] == nil {
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
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	alerts := alert.FindAllStringSubmatch(string(rules), -1)
	if len(alerts) < 5 {
		t.Errorf("only %d alerts were found", len(alerts))
	}
	for _, match := range alerts {
		_, section, found := strings.Cut(string(page), "\n### "+match[1]+"\n")
		section, _, _ = strings.Cut(section, "\n#")
		if !found || !strings.Contains(section, "\n- Fix: ") {
			t.Errorf("docs/troubleshooting.md doesn't say what to do about %s", match[1])
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
