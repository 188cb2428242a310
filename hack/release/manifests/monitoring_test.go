package manifests_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/hack/release/manifests"
)

const (
	ruleName      = "monitoring.coreos.com/v1/PrometheusRule/" + system + "/toolcall-operator"
	dashboardName = "v1/ConfigMap/" + system + "/toolcall-dashboard"
)

var monitored = values{"serviceMonitor": values{"enabled": true}, "prometheusRule": values{"enabled": true}, "dashboard": values{"enabled": true}}

func TestTheChartMonitorsAsTheKustomizationDoes(t *testing.T) {
	t.Parallel()
	want, without, got := kustomized(t, "monitoring"), chart(t, nil), chart(t, values{"monitoring": monitored})
	if len(want) != 4 {
		t.Errorf("the kustomization has %v", slices.Sorted(maps.Keys(want)))
	}
	for name := range without {
		delete(got, name)
	}
	for name, o := range want {
		if without[name] != nil {
			t.Errorf("%s is there without monitoring", name)
		}
		if config := asMap(o["data"]); config != nil {
			// What the chart adds at the end of a file is no part of the JSON.
			config["toolcall-operator.json"] = strings.TrimSpace(config["toolcall-operator.json"].(string))
			shipped := asMap(got[name]["data"])
			shipped["toolcall-operator.json"] = strings.TrimSpace(shipped["toolcall-operator.json"].(string))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("monitoring in the kustomization (-) and in the chart (+):\n%s", diff)
	}
}

func TestTheDashboardIsInstalledForASidecar(t *testing.T) {
	t.Parallel()
	own := chart(t, values{"monitoring": values{"dashboard": values{
		"enabled": true, "labels": values{"team": "x", "grafana_dashboard": "yes"}, "annotations": values{"grafana_folder": "Agents"},
	}}})[dashboardName]
	plain := chart(t, values{"monitoring": monitored})[dashboardName]
	for _, check := range []struct{ got, want any }{
		{at(t, plain, "metadata", "labels", "grafana_dashboard"), "1"},
		{at(t, plain, "metadata", "annotations"), nil},
		{at(t, own, "metadata", "labels", "grafana_dashboard"), "yes"},
		{at(t, own, "metadata", "labels", "team"), "x"},
		{at(t, own, "metadata", "annotations", "grafana_folder"), "Agents"},
	} {
		if diff := cmp.Diff(check.want, check.got); diff != "" {
			t.Error(diff)
		}
	}
	text, _ := at(t, plain, "data", "toolcall-operator.json").(string)
	if !json.Valid([]byte(text)) || !strings.Contains(text, "{{namespace}}/{{environment}}") {
		t.Error("the ConfigMap has no dashboard, or Helm took its legends for templates")
	}
}

func TestRunbooksAreWhereTheDocsAre(t *testing.T) {
	t.Parallel()
	plain := chart(t, values{"monitoring": values{"prometheusRule": values{"enabled": true}}})[ruleName]
	annotations := asMap(at(t, plain, "spec", "groups", 0, "rules", 0, "annotations"))
	if annotations["runbook"] != "docs/troubleshooting.md#toolcalloperatordown" || annotations["runbook_url"] != nil {
		t.Errorf("without an address: %v", annotations)
	}
	for base, want := range map[string]string{
		"https://wiki.test/docs":       "https://wiki.test/docs/troubleshooting.md#toolcalloperatordown",
		"https://wiki.test/toolcalls/": "https://wiki.test/toolcalls/troubleshooting.md#toolcalloperatordown",
	} {
		rule := chart(t, values{"monitoring": values{"prometheusRule": values{"enabled": true, "runbookBaseURL": base}}})[ruleName]
		if got := at(t, rule, "spec", "groups", 0, "rules", 0, "annotations", "runbook_url"); got != want {
			t.Errorf("with %s: %v, want %s", base, got, want)
		}
	}
	for _, base := range []string{"docs", "ftp://x", "https://x/#y", "https://x y"} {
		v := values{"monitoring": values{"prometheusRule": values{"enabled": true, "runbookBaseURL": base}}}
		if _, err := manifests.Chart(chartDir, v, manifests.Release{Name: "r", Namespace: system, KubeVersion: "v1.36.0"}); err == nil || !strings.Contains(err.Error(), "runbookBaseURL") {
			t.Errorf("with %q: %v", base, err)
		}
	}
}
