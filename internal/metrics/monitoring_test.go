package metrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

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
	SetClockSkew(-1500 * time.Millisecond)
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
		Network: &v1alpha1.NetworkStatus{Denied: []v1alpha1.DeniedHost{{Host: "192.0.2.7", Port: 22, Count: 1}}},
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

// The table of docs/operations.md has each metric, and says of which there is one for each environment.
func TestEveryMetricIsDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, family := range gather(t) {
		byEnvironment := false
		for _, label := range family.GetMetric()[0].GetLabel() {
			byEnvironment = byEnvironment || label.GetName() == "environment"
		}
		column := map[bool]string{true: "| yes |", false: "| |"}[byEnvironment]
		row := regexp.MustCompile("(?m)^\\| .*`" + name + "`.* " + regexp.QuoteMeta(column) + " .")
		if !row.Match(raw) {
			t.Errorf("docs/operations.md has no row of %s with the column %q", name, column)
		}
	}
	if limit := fmt.Sprintf("At most %d environments have series of their own", MaxEnvironments); !strings.Contains(string(raw), limit) {
		t.Errorf("docs/operations.md doesn't say %q", limit)
	}
}

// alert is one of rules.yaml.
type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func shippedAlerts(t *testing.T) (all []alert) {
	t.Helper()
	raw, err := os.ReadFile("../../config/monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rule struct {
		Spec struct {
			Groups []struct {
				Rules []alert `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(raw, &rule); err != nil {
		t.Fatal(err)
	}
	for _, group := range rule.Spec.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) < 5 {
		t.Fatalf("only %d alerts were found", len(all))
	}
	return all
}

var heading = regexp.MustCompile(`(?m)^### (\w+)$`)

// Whoever is woken by an alert finds out what it means and what to do. The page has no section of an alert that is gone.
func TestEveryAlertIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n## Alerts\n")
	chapter, _, _ := strings.Cut(rest, "\n## ")
	sections := map[string]string{}
	places := heading.FindAllStringSubmatchIndex(chapter, -1)
	for i, place := range places {
		end := len(chapter)
		if i+1 < len(places) {
			end = places[i+1][0]
		}
		sections[chapter[place[2]:place[3]]] = chapter[place[1]:end]
	}
	for _, a := range shippedAlerts(t) {
		for _, part := range []string{"\n- Symptom: ", "\n- Command: ", "\n- Fix: "} {
			if !strings.Contains(sections[a.Alert], part) {
				t.Errorf("%s in docs/troubleshooting.md has no line %q", a.Alert, strings.TrimSpace(part))
			}
		}
		delete(sections, a.Alert)
		if want := "docs/troubleshooting.md#" + strings.ToLower(a.Alert); a.Annotations["runbook"] != want {
			t.Errorf("the runbook of %s is %q, want %q", a.Alert, a.Annotations["runbook"], want)
		}
		if !strings.HasSuffix(a.Annotations["summary"], ".") || !strings.HasSuffix(a.Annotations["description"], ".") {
			t.Errorf("%s has no sentences as its summary and description: %v", a.Alert, a.Annotations)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("the severity of %s is %q", a.Alert, a.Labels["severity"])
		}
	}
	for name := range sections {
		t.Errorf("docs/troubleshooting.md has a section of %s, which isn't an alert", name)
	}
}

var selector = regexp.MustCompile(`increase\((toolcall_\w+)\{(\w+)=~?"([^"]+)"`)

// A series that begins at 1 never rises, so the first event of its kind would make no alert.
func TestSeriesThatAlertsWatchBeginAtZero(t *testing.T) {
	env := types.NamespacedName{Namespace: "begun", Name: "tools"}
	AddEnvironment(env)
	defer ForgetEnvironment(env)
	there, checked := seriesOf(t, ""), 0
	for _, a := range shippedAlerts(t) {
		for _, match := range selector.FindAllStringSubmatch(a.Expr, -1) {
			for value := range strings.SplitSeq(match[3], "|") {
				checked++
				if missing := missingSeries(there, match[1], match[2]+"="+value); len(missing) > 0 {
					t.Errorf("%s watches %v with %s=%s, which aren't there from the beginning", a.Alert, missing, match[2], value)
				}
			}
		}
	}
	if checked < 12 {
		t.Errorf("only %d values of labels were looked for", checked)
	}
}

// missingSeries are the beginnings of series that should be there with a label: of an environment, and of what is in none.
func missingSeries(there map[string]float64, metric, label string) (missing []string) {
	wanted := []string{metric + "{environment=tools,namespace=begun,", metric + "{environment=Other,namespace=begun,", metric + "{" + other + ","}
	if metric == "toolcall_reports_total" || metric == "toolcall_approvals_total" { // These have no environment.
		wanted = []string{metric + "{"}
	}
	for _, prefix := range wanted {
		found := slices.ContainsFunc(slices.Collect(maps.Keys(there)), func(series string) bool {
			return strings.HasPrefix(series, prefix) && strings.Contains(series, label)
		})
		if !found {
			missing = append(missing, prefix)
		}
	}
	return missing
}

// What else a dashboard needs, a test with Prometheus finds out.
func TestTheDashboardIsJSON(t *testing.T) {
	raw, err := os.ReadFile("../../config/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID          int    `json:"id"`
			Title       string `json:"title"`
			Type        string `json:"type"`
			Description string `json:"description"`
			GridPos     struct{ X, Y, W, H int }
		}
	}
	if err := json.Unmarshal(raw, &dashboard); err != nil || len(dashboard.Panels) == 0 {
		t.Fatalf("%v, %d panels", err, len(dashboard.Panels))
	}
	ids, cells := map[int]string{}, map[[2]int]string{}
	for _, panel := range dashboard.Panels {
		if before := ids[panel.ID]; before != "" {
			t.Errorf("panels %q and %q have the same id", before, panel.Title)
		}
		ids[panel.ID] = panel.Title
		if panel.Type != "row" && !strings.HasSuffix(panel.Description, ".") {
			t.Errorf("panel %q has no description", panel.Title)
		}
		at := panel.GridPos
		for i := range at.W * at.H {
			x, y := at.X+i%at.W, at.Y+i/at.W
			if before := cells[[2]int{x, y}]; before != "" || x >= 24 {
				t.Fatalf("panel %q lies over %q, or outside", panel.Title, before)
			}
			cells[[2]int{x, y}] = panel.Title
		}
	}
}
