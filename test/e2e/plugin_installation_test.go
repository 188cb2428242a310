package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// doctorFinding is a finding of doctor.
type doctorFinding struct{ Check, State, Detail, Advice string }

func (sp *space) doctor(t *testing.T, args ...string) (map[string][]doctorFinding, int) {
	t.Helper()
	got := sp.plugin(t, "", append([]string{"doctor", "-o", "json"}, args...)...)
	var report struct {
		Kind     string
		Findings []doctorFinding
	}
	if err := json.Unmarshal([]byte(got.out), &report); err != nil || report.Kind != "Diagnosis" {
		t.Fatalf("%v: exit code %d, %s%s", err, got.code, got.out, got.err)
	}
	byCheck := map[string][]doctorFinding{}
	for _, f := range report.Findings {
		byCheck[f.Check] = append(byCheck[f.Check], f)
	}
	return byCheck, got.code
}

// doctor sees an installation that works as one, and what the node's kernel can do. Other tests' policies and environments may be
// broken on purpose, so the whole isn't judged.
func TestPluginDoctor(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	call := sp.run(t, shell("true"))
	sp.awaitReady(t, defaultEnv, metav1.ConditionTrue, v1alpha1.ReasonReady)
	var found map[string][]doctorFinding
	// A call takes a pod of the pool that waits, and for a moment doctor says so.
	sp.awaitTrue(t, "the environment's pool is full again", func(context.Context) (bool, error) {
		found, _ = sp.doctor(t)
		return len(found["environments"]) == 1 && found["environments"][0].State == "OK", nil
	})
	for _, check := range []string{"cluster", "kinds", "admission", "output API", "nodes"} {
		for _, f := range found[check] {
			if f.State != "OK" {
				t.Errorf("%+v", f)
			}
		}
	}
	for check, part := range map[string]string{"operator": "toolcall-operator", "output store": "StatefulSet", "version": "operator ", "environments": sp.namespace + "/" + defaultEnv} {
		if len(found[check]) == 0 || !strings.Contains(found[check][0].Detail, part) {
			t.Errorf("%s: %+v", check, found[check])
		}
	}
	if nodes := found["nodes"]; len(nodes) != 1 || !strings.Contains(nodes[0].Detail, call.Status.Node) {
		t.Errorf("nodes: %+v", nodes)
	}
	sp.plugin(t, "", "env", "suspend", defaultEnv)
	found, _ = sp.doctor(t)
	if e := found["environments"]; e[0].State != "WARNING" || !strings.Contains(e[0].Advice, "env resume "+defaultEnv) {
		t.Errorf("a suspended environment: %+v", e)
	}
}

// Somebody without rights learns what can be seen by everybody, and what can't.
func TestPluginDoctorWithoutRights(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	found, code := sp.doctor(t, "--as", "nobody")
	for check, state := range map[string]string{
		"cluster": "OK", "kinds": "OK", "output API": "OK", "admission": "UNKNOWN", "operator": "UNKNOWN", "output store": "UNKNOWN",
		"environments": "UNKNOWN", "policies": "UNKNOWN", "nodes": "UNKNOWN",
	} {
		if len(found[check]) != 1 || found[check][0].State != state {
			t.Errorf("%s: %+v, not %s", check, found[check], state)
		}
	}
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestPluginVersionAndTools(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	got := sp.plugin(t, "", "version")
	if lines := strings.Split(got.out, "\n"); got.code != 0 || !strings.HasPrefix(lines[0], "kubectl-toolcall ") || !strings.HasPrefix(lines[1], "operator ") {
		t.Errorf("got %+v", got)
	}
	got = sp.plugin(t, "", "tools")
	for _, want := range []string{"You may use:  any tool", defaultEnv, sp.policy, "RBAC", "python"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("tools lacks %q: %+v", want, got)
		}
	}
	got = sp.plugin(t, "", "tools", "--as", "nobody")
	if got.code != 0 || !strings.Contains(got.out, "You may use:  none") {
		t.Errorf("got %+v", got)
	}
}
