package plugin

import (
	"encoding/json"
	"testing"

	"k8s.io/utils/ptr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// top counts what the API server's table says, also of environments that nobody uses.
func TestTop(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.run("top").expect(t, 0, "No environments and no calls found.")
	f.environment("tools", true)
	f.environment("unused", false)
	f.setReady("tools", metav1.ConditionTrue, "Ready", &v1alpha1.WarmStatus{Ready: 1, Desired: 2})
	in := func(environment string, s v1alpha1.ToolCallStatus, ms int64) v1alpha1.ToolCallStatus {
		s.Environment = &v1alpha1.ResolvedEnvironment{Name: environment}
		if ms > 0 {
			s.DurationMilliseconds = ptr.To(ms)
		}
		return s
	}
	for name, status := range map[string]v1alpha1.ToolCallStatus{
		"a": in("tools", succeeded(), 10), "b": in("tools", succeeded(), 30), "c": in("tools", succeeded(), 20),
		"d": in("tools", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: "ShellDisabled"}, 0),
	} {
		f.detached(name)
		f.end(name, status)
	}
	f.detached("e")
	call := f.call("e")
	call.Status = in("tools", *running("pod"), 0)
	if err := f.client.Status().Update(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	f.detached("queued")
	got := f.run("top")
	found := rows(got.out)
	for name, want := range map[string]string{
		"ENVIRONMENT": "ENVIRONMENT RUNNING QUEUED WARM P50 FINISHED DENIED",
		"tools":       "tools 1 0 1/2 20ms 3 1",
		"-":           "- 0 1 - - 0 0",
		"unused":      "unused 0 0 - - 0 0",
		"CALLER":      "CALLER RUNNING QUEUED P50 FINISHED DENIED",
		"admin":       "admin 1 1 20ms 3 1",
	} {
		if found[name] != want {
			t.Errorf("the row of %s is %q, not %q\n%s", name, found[name], want, got.out)
		}
	}
	f.run("top", "-A").expect(t, 0, "NAMESPACE ENVIRONMENT", f.namespace+" tools 1 0 1/2 20ms 3 1")
	f.run("top", "--since", "1ns").expect(t, 0, "tools 0 0 1/2 - 0 0")
	var report struct {
		Kind string
		usageReport
	}
	if err := json.Unmarshal([]byte(f.run("top", "-o", "json").out), &report); err != nil || report.Kind != "Usage" || *report.Environments[0].P50Milliseconds != 20 || report.Callers[0].Denied != 1 {
		t.Errorf("%v: %+v", err, report)
	}
	f.run("top", "--since", "-1m").expect(t, 1, "--since -1m0s: must not be negative")
}

func TestDescribeOfEnvironments(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Network = &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkListed, Allowed: []v1alpha1.AllowedHost{{Host: "a.example.com"}, {Host: "*.b.example.com"}}}
	})
	f.environment("tools", true, v1alpha1.EnvVar{Name: "PLAIN", Value: "private"})
	f.make(&v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "other"}, Spec: v1alpha1.ExecutionEnvironmentSpec{
		Image: "i", PolicyRef: &v1alpha1.PolicyReference{Name: f.namespace},
		Sessions: &v1alpha1.SessionLimits{Max: ptr.To(int32(7)), MaxPerCaller: ptr.To(int32(2))},
	}})
	f.setReady("tools", metav1.ConditionFalse, "DuplicateDefault", nil)
	got := f.run("env", "describe", "tools", "other")
	got.expect(t, 0, "Name: tools", "Default: yes", "Ready: False (DuplicateDefault)", "Policy: "+f.namespace, "Allows: any program; shell; code in python",
		"Network: a.example.com, *.b.example.com", "Sessions: 7, and 2 of each requester", "PLAIN: a value", "Events: none", "Name: other", "Ready: Unknown")
	f.run("env", "suspend", "other", "-o", "name").expect(t, 0, "executionenvironment.toolcall.dev/other")
	f.run("env", "describe", "other").expect(t, 0, "Suspended: yes: no new call starts; kubectl toolcall env resume other lets them")
	f.run("env", "describe", "none").expect(t, 1, "environment none not found in namespace")
	f.run("env", "describe").expect(t, 1, "specify the names of the environments")
}
