package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// dashboard is what of Grafana's JSON is asked of Prometheus.
type dashboard struct {
	Panels []struct {
		Title   string `json:"title"`
		Type    string `json:"type"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Name string `json:"name"`
			Type string `json:"type"`
			// Query is a string of a data source, an object of a query.
			Query json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

func shippedDashboard(t *testing.T) dashboard {
	t.Helper()
	raw, err := os.ReadFile(config + "dashboard.json")
	must(t, err)
	var d dashboard
	must(t, json.Unmarshal(raw, &d))
	return d
}

// withVariables is an expression as Grafana sends it.
func withVariables(expr, namespace, environment string) string {
	return strings.NewReplacer("$namespace", namespace, "$environment", environment, "$__rate_interval", "1m").Replace(expr)
}

func TestPrometheusAnswersTheDashboardAndEvaluatesTheAlerts(t *testing.T) {
	// The panel with the collector's bound shows one that was set, as the operator does in a container with a limit.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(4 << 30))
	w, d := newWatched(t), shippedDashboard(t)
	w.begin()
	eventually(t, "a pool, a queue and an environment that isn't Ready", func() error {
		w.goOn()
		// Calls that were created too soon after the admission policies are denied.
		w.createCall("narrow")
		for _, expr := range []string{
			`toolcall_pool_pods_created_total{namespace="agents",environment="tools"} == 2`, `toolcall_calls_queued{environment="narrow"} > 0`,
			`toolcall_environment_ready{environment="broken"} == 0`,
			`toolcall_calls_finished_total{namespace="agents",environment="strict",phase="Denied",reason="ShellDisabled"} > 0`,
			`toolcall_calls_finished_total{namespace="agents",environment="Other",reason="EnvironmentNotFound"} > 0`,
			`sum(toolcall_sessions{namespace="agents",environment="narrow"}) == 1`,
		} {
			got, err := w.query(expr)
			if err != nil {
				return err
			}
			if len(got) != 1 {
				return fmt.Errorf("%s: %v", expr, got)
			}
		}
		return nil
	})
	t.Run("panels", func(t *testing.T) { w.panelsShow(t, d) })
	t.Run("variables", func(t *testing.T) { w.variablesOffer(t, d) })
	t.Run("names", func(t *testing.T) { w.namesExist(t, d) })
	t.Run("alerts", w.alertsAreEvaluated)
	t.Run("absent environments", w.absentEnvironmentsMakeNoSeries)
	t.Run("a deleted environment", w.aDeletedEnvironmentHasNoSeries)
}

// panelsShow finds a result for each query of each panel, for all environments. For one alone each is answered.
func (w *watched) panelsShow(t *testing.T, d dashboard) {
	panels := 0
	for _, panel := range d.Panels {
		if panel.Type == "row" {
			continue
		}
		panels++
		if len(panel.Targets) == 0 {
			t.Errorf("panel %q asks nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			eventually(t, panel.Title, func() error {
				w.goOn()
				got, err := w.query(withVariables(target.Expr, ".*", ".*"))
				if err == nil && len(got) == 0 {
					err = errors.New("no result of " + target.Expr)
				}
				return err
			})
			if _, err := w.query(withVariables(target.Expr, "agents", "tools|narrow")); err != nil {
				t.Errorf("%s: %v", panel.Title, err)
			}
		}
	}
	if panels < 20 {
		t.Errorf("the dashboard has %d panels", panels)
	}
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// variablesOffer asks for a variable's values as Grafana does.
func (w *watched) variablesOffer(t *testing.T, d dashboard) {
	offers := map[string][]string{}
	for _, variable := range d.Templating.List {
		if variable.Type != "query" {
			offers[variable.Name] = nil
			continue
		}
		var asked struct {
			Query string `json:"query"`
		}
		must(t, json.Unmarshal(variable.Query, &asked))
		match := labelValues.FindStringSubmatch(withVariables(asked.Query, "agents", ".*"))
		if match == nil {
			t.Fatalf("the query of variable %s is %q", variable.Name, asked.Query)
		}
		values, err := w.strings("label/"+match[2]+"/values", url.Values{"match[]": {match[1]}})
		must(t, err)
		offers[variable.Name] = values
	}
	if _, found := offers["datasource"]; !found || len(offers) != 3 {
		t.Errorf("the variables are %v", offers)
	}
	for name, want := range map[string][]string{"namespace": {"Other", "agents"}, "environment": {"Other", "broken", "narrow", "strict", "tools"}} {
		if !slices.Equal(offers[name], want) {
			t.Errorf("variable %s offers %q, want %q", name, offers[name], want)
		}
	}
}

var (
	quoted     = regexp.MustCompile(`"[^"]*"`)
	duration   = regexp.MustCompile(`\[[^\]]*\]`)
	matchers   = regexp.MustCompile(`\{([^}]*)\}`)
	grouping   = regexp.MustCompile(`\b(?:by|on|without) \(([^)]*)\)`)
	identifier = regexp.MustCompile(`[a-z][a-z_]*_[a-z_]+`)
	labelName  = regexp.MustCompile(`\w+`)
	function   = []string{"histogram_quantile", "min_over_time"}
)

// namesOf are the metrics and the labels that an expression names.
func namesOf(expr string) (metrics, labels []string) {
	expr = duration.ReplaceAllString(quoted.ReplaceAllString(expr, ""), "")
	for _, pattern := range []*regexp.Regexp{matchers, grouping} {
		for _, match := range pattern.FindAllStringSubmatch(expr, -1) {
			labels = append(labels, labelName.FindAllString(match[1], -1)...)
		}
		expr = pattern.ReplaceAllString(expr, "")
	}
	for _, name := range identifier.FindAllString(expr, -1) {
		if !slices.Contains(function, name) {
			metrics = append(metrics, name)
		}
	}
	return metrics, labels
}

func TestNamesOfAnExpression(t *testing.T) {
	t.Parallel()
	metrics, labels := namesOf(`histogram_quantile(0.9, sum by (le, path) (rate(a_bucket{stage="no_name",x=~"b"}[5m]))) and on (job) c_total == 1`)
	if !slices.Equal(metrics, []string{"a_bucket", "c_total"}) || !slices.Equal(labels, []string{"stage", "x", "le", "path", "job"}) {
		t.Errorf("got %q and %q", metrics, labels)
	}
}

// namesExist looks for each metric of the panels and of the alerts, and for each label on one of the expression's metrics.
func (w *watched) namesExist(t *testing.T, d dashboard) {
	var all []string
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			all = append(all, withVariables(target.Expr, ".*", ".*"))
		}
	}
	for _, r := range shippedRules(t).all() {
		all = append(all, r.Expr)
	}
	for _, expr := range all {
		metrics, labels := namesOf(expr)
		if len(metrics) == 0 {
			t.Errorf("no metric was found in %s", expr)
		}
		var there []string
		for _, name := range metrics {
			own := w.labelsOf(t, name)
			if len(own) == 0 {
				t.Errorf("the operator has no %s, as in %s", name, expr)
			}
			there = append(there, own...)
		}
		for _, label := range labels {
			if !slices.Contains(there, label) {
				t.Errorf("no series has the label %s, as in %s", label, expr)
			}
		}
	}
}

// labelsOf are the names of the labels that a metric's series have.
func (w *watched) labelsOf(t *testing.T, name string) (labels []string) {
	t.Helper()
	var series []map[string]string
	must(t, w.ask("series", url.Values{"match[]": {name}}, &series))
	for _, one := range series {
		labels = slices.AppendSeq(labels, maps.Keys(one))
	}
	return labels
}

// alertsAreEvaluated finds each without an error, and one that is pending with its text.
func (w *watched) alertsAreEvaluated(t *testing.T) {
	type evaluated struct {
		Name, Health, LastError string
		Alerts                  []struct{ Annotations map[string]string }
	}
	var data struct{ Groups []struct{ Rules []evaluated } }
	eventually(t, "the alerts to be evaluated", func() error {
		must(t, w.ask("rules", nil, &data))
		for _, group := range data.Groups {
			for _, r := range group.Rules {
				if r.Health != "ok" {
					return fmt.Errorf("%s is %s: %s", r.Name, r.Health, r.LastError)
				}
			}
		}
		return nil
	})
	if len(data.Groups) != 1 || len(data.Groups[0].Rules) != len(shippedRules(t).all()) {
		t.Errorf("Prometheus has the groups %v", data.Groups)
	}
	var summaries []string
	for _, group := range data.Groups {
		for _, r := range group.Rules {
			for _, alert := range r.Alerts {
				summaries = append(summaries, alert.Annotations["summary"])
			}
		}
	}
	if want := "Calls can't run in environment agents/broken, or not on each of its nodes."; !slices.Contains(summaries, want) {
		t.Errorf("the alerts say %q, want %q among them", summaries, want)
	}
}

// seriesOfCalls counts the series of finished calls.
func (w *watched) seriesOfCalls(t *testing.T) string {
	t.Helper()
	got, err := w.query(`count({__name__=~"toolcall_.*",namespace!="toolcall-system"})`)
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	return got[0].Value[1].(string)
}

func (w *watched) absentEnvironmentsMakeNoSeries(t *testing.T) {
	const failed = `sum(toolcall_calls_finished_total{reason="EnvironmentNotFound"})`
	before := w.seriesOfCalls(t)
	for range 50 {
		w.createCall(fmt.Sprint("absent-", absent.Add(1)))
	}
	eventually(t, "the calls to be counted", func() error {
		got, err := w.query(fmt.Sprintf("%s == %d", failed, absent.Load()))
		if err == nil && len(got) == 0 {
			err = errors.New("not all are")
		}
		return err
	})
	if after := w.seriesOfCalls(t); after != before {
		t.Errorf("%s series, and after 50 calls that name absent environments %s", before, after)
	}
}

func (w *watched) aDeletedEnvironmentHasNoSeries(t *testing.T) {
	must(t, w.admin.Delete(t.Context(), &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "strict"}}))
	eventually(t, "the series to go", func() error {
		got, err := w.query(`{environment="strict"}`)
		if err == nil && len(got) > 0 {
			err = fmt.Errorf("%d are left", len(got))
		}
		return err
	})
}
