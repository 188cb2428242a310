package environments

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestDescribeOfEnvironments(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) {
		p.Network = &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkListed, Allowed: []v1alpha1.AllowedHost{{Host: "a.example.com"}, {Host: "*.b.example.com"}}}
	})
	f.Environment("tools", true, v1alpha1.EnvVar{Name: "PLAIN", Value: "private"})
	f.Make(&v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "other"}, Spec: v1alpha1.ExecutionEnvironmentSpec{
		Image: "i", PolicyRef: &v1alpha1.PolicyReference{Name: f.Namespace},
		Sessions: &v1alpha1.SessionLimits{Max: ptr.To(int32(7)), MaxPerCaller: ptr.To(int32(2))},
	}})
	f.SetReady("tools", metav1.ConditionFalse, "DuplicateDefault", nil)
	got := f.Run("env", "describe", "tools", "other")
	got.Expect(t, 0, "Name: tools", "Default: yes", "Ready: False (DuplicateDefault)", "Policy: "+f.Namespace, "Allows: any program; shell; code in python",
		"Network: a.example.com, *.b.example.com", "Sessions: 7, and 2 of each requester", "PLAIN: a value", "Events: none", "Name: other", "Ready: Unknown")
	f.Run("env", "suspend", "other", "-o", "name").Expect(t, 0, "executionenvironment.toolcall.dev/other")
	f.Run("env", "describe", "other").Expect(t, 0, "Suspended: yes: no new call starts; kubectl toolcall env resume other lets them")
	f.Run("env", "describe", "none", "other").Expect(t, 1, "environment none not found in namespace", "Suspended: yes")
	f.Run("env", "describe").Expect(t, 1, "specify the names of the environments")
}

// Names of secrets, their sources and their tools are shown.
func TestEnvDescribeNamesSecrets(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy()
	key := func(name, key string) corev1.SecretKeySelector {
		return corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}
	}
	f.Make(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "forge"}, StringData: map[string]string{"token": "example-value"}},
		&v1alpha1.ExecutionEnvironment{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "tools"},
			Spec: v1alpha1.ExecutionEnvironmentSpec{Image: "i", Secrets: []v1alpha1.ToolSecret{
				{Name: "FORGE_TOKEN", SecretKeyRef: key("forge", "token"), Tools: []string{"git", "bash"}},
				{Name: "KEY", SecretKeyRef: key("ssh", "id"), As: v1alpha1.SecretAsFile, Tools: []string{"ssh"}, Redact: ptr.To(false)},
			}},
		})
	got := f.Run("env", "describe", "tools")
	got.Expect(t, 0, "Secrets: FORGE_TOKEN: key token of Secret forge, for git, bash KEY: key id of Secret ssh, as a file, for ssh; not redacted")
	if strings.Contains(got.Out, "example-value") {
		t.Errorf("the value is shown: %s", got.Out)
	}
}

// An error that isn't about one name ends the reading: each of the next would be another try, and another line.
func TestDescribeOfSeveralEndsAtAnErrorOfTheAPIServer(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Environment("a", true)
	config, failed := f.Failing("no store", "b", "c")
	out, errs, code := plugintest.Run("", "--kubeconfig", config, "-n", f.Namespace, "env", "describe", "none", "a", "b", "c", "-o", "name")
	if code != 1 || out != "executionenvironment.toolcall.dev/a\n" || !strings.Contains(errs, "environment none not found") ||
		strings.Count(errs, "no store") != 1 || failed.Load() != 1 {
		t.Errorf("exit code %d, %q, %q, %d requests that failed", code, out, errs, failed.Load())
	}
}
