package monitoring

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/internal/testing/built"
)

const config = "../../config/monitoring/"

// ruleFile is what Prometheus reads, and what a PrometheusRule has as its spec.
type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

// all are the rules of all groups.
func (f ruleFile) all() (rules []rule) {
	for _, group := range f.Groups {
		rules = append(rules, group.Rules...)
	}
	return rules
}

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func shippedRules(t *testing.T) ruleFile {
	t.Helper()
	var object struct {
		Spec ruleFile `json:"spec"`
	}
	readYAML(t, config+"rules.yaml", &object)
	if len(object.Spec.Groups) == 0 || len(object.Spec.Groups[0].Rules) == 0 {
		t.Fatal("rules.yaml has no rules")
	}
	return object.Spec
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(raw, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func writeYAML(t *testing.T, path string, value any) string {
	t.Helper()
	raw, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	program, err := built.Helper("promtool")
	if err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, said)
	}
}

func TestPrometheusTakesTheRules(t *testing.T) {
	apiservertest.Needs(t)
	promtool(t, "check", "rules", writeYAML(t, filepath.Join(t.TempDir(), "rules.yaml"), shippedRules(t)))
}

func TestAlertsFireWhenTheyShouldAndOnlyThen(t *testing.T) {
	apiservertest.Needs(t)
	rules, dir := shippedRules(t), t.TempDir()
	// promtool compares annotations word by word; what they say is looked at below.
	for _, group := range rules.Groups {
		for i := range group.Rules {
			group.Rules[i].Annotations = nil
		}
	}
	writeYAML(t, filepath.Join(dir, "rules.yaml"), rules)
	raw, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tests := filepath.Join(dir, "alerts.yaml")
	if err := os.WriteFile(tests, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", tests)
}

var labelInText = regexp.MustCompile(`\$labels\.(\w+)`)

// Each alert has a case in which it fires, with the labels that its text names, and one in which it doesn't.
func TestEveryAlertIsTried(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alert string `json:"alertname"`
				Exp   []struct {
					Labels map[string]string `json:"exp_labels"`
				} `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	readYAML(t, "testdata/alerts.yaml", &file)
	fires, quiet := map[string]map[string]string{}, map[string]bool{}
	for _, one := range file.Tests {
		for _, check := range one.AlertRuleTest {
			quiet[check.Alert] = quiet[check.Alert] || len(check.Exp) == 0
			for _, alert := range check.Exp {
				fires[check.Alert] = alert.Labels
			}
		}
	}
	for _, r := range shippedRules(t).all() {
		if fires[r.Alert] == nil || !quiet[r.Alert] {
			t.Errorf("%s fires in a case: %t, and doesn't in another: %t", r.Alert, fires[r.Alert] != nil, quiet[r.Alert])
		}
		said := strings.Join(slices.Collect(maps.Values(r.Annotations)), " ")
		for _, match := range labelInText.FindAllStringSubmatch(said, -1) {
			if fires[r.Alert][match[1]] == "" {
				t.Errorf("%s names the label %s, and has %v", r.Alert, match[1], slices.Sorted(maps.Keys(fires[r.Alert])))
			}
		}
	}
}
