package calls

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// top counts what the API server's table says, also of environments that nobody uses.
func TestTop(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Run("top").Expect(t, 0, "No environments and no calls found.")
	f.Environment("tools", true)
	f.Environment("unused", false)
	f.SetReady("tools", metav1.ConditionTrue, "Ready", &v1alpha1.WarmStatus{Ready: 1, Desired: 2})
	in := func(environment string, s v1alpha1.ToolCallStatus, ms int64) v1alpha1.ToolCallStatus {
		s.Environment = &v1alpha1.ResolvedEnvironment{Name: environment}
		if ms > 0 {
			s.DurationMilliseconds = ptr.To(ms)
		}
		return s
	}
	for name, status := range map[string]v1alpha1.ToolCallStatus{
		"a": in("tools", plugintest.Succeeded(), 10), "b": in("tools", plugintest.Succeeded(), 30), "c": in("tools", plugintest.Succeeded(), 20),
		"d": in("tools", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: "ShellDisabled"}, 0),
	} {
		f.Detached(name)
		f.End(name, status)
	}
	f.Detached("e")
	call := f.Call("e")
	call.Status = in("tools", *plugintest.Running("pod"), 0)
	if err := f.Client.Status().Update(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	f.Detached("queued")
	got := f.Run("top")
	found := plugintest.Rows(got.Out)
	for name, want := range map[string]string{
		"ENVIRONMENT": "ENVIRONMENT RUNNING QUEUED WARM P50 FINISHED DENIED",
		"tools":       "tools 1 0 1/2 20ms 3 1",
		"-":           "- 0 1 - - 0 0",
		"unused":      "unused 0 0 - - 0 0",
		"CALLER":      "CALLER RUNNING QUEUED P50 FINISHED DENIED",
		"admin":       "admin 1 1 20ms 3 1",
	} {
		if found[name] != want {
			t.Errorf("the row of %s is %q, not %q\n%s", name, found[name], want, got.Out)
		}
	}
	f.Run("top", "-A").Expect(t, 0, "NAMESPACE ENVIRONMENT", f.Namespace+" tools 1 0 1/2 20ms 3 1")
	f.Run("top", "--since", "1ns").Expect(t, 0, "tools 0 0 1/2 - 0 0")
	var report struct {
		Kind string
		usageReport
	}
	if err := json.Unmarshal([]byte(f.Run("top", "-o", "json").Out), &report); err != nil || report.Kind != "Usage" || *report.Environments[0].P50Milliseconds != 20 || report.Callers[0].Denied != 1 {
		t.Errorf("%v: %+v", err, report)
	}
	f.Run("top", "--since", "-1m").Expect(t, 1, "--since -1m0s: must not be negative")
}
