package plugin

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

const hostRefusal = `The command exited with code 3. Reaching "b.example.com" at port 443 by curl was not allowed: add it.`

// heldCall is the end of a call whose command went on after hosts were refused to it.
func heldCall(phase v1alpha1.Phase, reason string, code int32) v1alpha1.ToolCallStatus {
	return v1alpha1.ToolCallStatus{
		Phase: phase, Reason: reason, ExitCode: ptr.To(code), Message: hostRefusal,
		Network: &v1alpha1.NetworkStatus{Mode: v1alpha1.NetworkListed, Allowed: []string{"a.example.com", "192.0.2.0/24"}, OmittedDenied: 7, Denied: []v1alpha1.DeniedHost{
			{Host: "b.example.com", Count: 2}, {Host: "b.example.com", Port: 443, Count: 1}, {Host: "2001:db8::7", Port: 22, Count: 3},
		}},
		Redactions: []v1alpha1.Redaction{{Name: "TOKEN", Stream: v1alpha1.RedactedStdout, Count: 1}, {Name: "TOKEN", Stream: v1alpha1.RedactedMessage, Count: 4}},
	}
}

func TestDescribeShowsTheNetworkAndRedactions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.run("run", "--detach", "--name", "c", "--network-host", "a.example.com", "--network-host", "192.0.2.0/24", "--", "ls").expect(t, 0)
	f.end("c", heldCall(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, 3))
	f.run("describe", "c").expect(t, 0, "Network: "+
		"Narrowed to: a.example.com, 192.0.2.0/24 "+
		"Mode: Listed "+
		"Refused: b.example.com (lookup), 2 times "+
		"Refused: b.example.com:443, once "+
		"Refused: [2001:db8::7]:22, 3 times "+
		"Refused: and other hosts, 7 times "+
		"Redactions: TOKEN: in stdout, once TOKEN: in message, 4 times Conditions:")
	f.detached("listed")
	f.end("listed", heldCall(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, 3))
	f.run("describe", "listed").expect(t, 0, "Network: Mode: Listed Allowed: a.example.com, 192.0.2.0/24 Refused: b.example.com (lookup), 2 times")
	f.run("describe", "c", "-o", "jsonpath={.status.network.denied[1].host} {.status.redactions[1].count}").expect(t, 0, "b.example.com 4")
	f.detached("free")
	f.end("free", succeeded())
	if got := f.run("describe", "free"); strings.Contains(got.out, "Network:") || strings.Contains(got.out, "Redactions:") {
		t.Errorf("a call without a network in its status shows one: %s", got.out)
	}
}

// A command that ended badly after a host was refused says which; one that got along without it doesn't.
func TestRunAndWaitSayWhichHostWasRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if call.Name == "fine" {
			return finished(heldCall(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, 0))
		}
		return finished(heldCall(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, 3))
	})
	f.run("run", "--name", "refused", "--", "ls").expect(t, 3, "call refused: Failed (NonZeroExit): "+hostRefusal)
	f.run("wait", "refused").expect(t, 3, "refused Failed NonZeroExit exit 3", "call refused: "+hostRefusal)
	if got := f.run("run", "-q", "--name", "fine", "--", "ls"); got.err != "" {
		t.Errorf("got %q", got.err)
	}
}

func TestCheckShowsTheNetwork(t *testing.T) {
	t.Parallel()
	listed := &v1alpha1.NetworkRules{Mode: v1alpha1.NetworkListed, Allowed: []v1alpha1.AllowedHost{{Host: "a.example.com"}, {Host: "*.b.example.com"}}}
	for name, c := range map[string]struct {
		network *v1alpha1.NetworkRules
		args    []string
		code    int
		want    string
	}{
		"no rules":                      {nil, []string{"--", "ls"}, 0, "Network: held by the runner: every host outside the cluster that isn't denied"},
		"what the pod has":              {&v1alpha1.NetworkRules{Mode: v1alpha1.NetworkUnrestricted}, []string{"--", "ls"}, 0, "Network: same as the pod"},
		"a list":                        {listed, []string{"--", "ls"}, 0, "Network: held by the runner: a.example.com, *.b.example.com"},
		"an empty list":                 {&v1alpha1.NetworkRules{Mode: v1alpha1.NetworkListed}, []string{"--", "ls"}, 0, "Network: held by the runner: no host"},
		"a list that the call narrows":  {listed, []string{"--network-host", "X.b.example.com", "--", "ls"}, 0, "Network: held by the runner: x.b.example.com"},
		"code under a list":             {listed, []string{"--code", "python", "-f", "-"}, 0, "Network: held by the runner: a.example.com"},
		"everything but what is denied": {&v1alpha1.NetworkRules{}, []string{"--", "ls"}, 0, "Network: held by the runner: every host outside the cluster that isn't denied"},
		"code that doesn't ask":         {&v1alpha1.NetworkRules{}, []string{"--code", "python", "-f", "-"}, 0, "Network: none, held by a filter"},
		"none":                          {&v1alpha1.NetworkRules{Mode: v1alpha1.NetworkNone}, []string{"--", "ls"}, 0, "Network: none, held by a filter"},
		"a host beyond the list":        {listed, []string{"--network-host", "c.example.com", "--", "ls"}, codeDenied, "c.example.com isn't covered by the policy's network.allowed: add {host: c.example.com} there, or leave it out"},
		"a host without a list":         {nil, []string{"--network-host", "c.example.com", "--", "ls"}, 0, "Network: held by the runner: c.example.com"},
		"a host where nothing is held":  {&v1alpha1.NetworkRules{Mode: v1alpha1.NetworkUnrestricted}, []string{"--network-host", "c.example.com", "--", "ls"}, codeDenied, "NetworkNotAllowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.policy(func(p *v1alpha1.ExecutionPolicySpec) { p.Network = c.network })
			f.environment("tools", true)
			f.run(append([]string{"check"}, c.args...)...).expect(t, c.code, c.want)
		})
	}
}

// Names of secrets, their sources and their tools are shown.
func TestEnvDescribeNamesSecrets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.policy()
	key := func(name, key string) corev1.SecretKeySelector {
		return corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}
	}
	f.make(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "forge"}, StringData: map[string]string{"token": "example-value"}},
		&v1alpha1.ExecutionEnvironment{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "tools"},
			Spec: v1alpha1.ExecutionEnvironmentSpec{Image: "i", Secrets: []v1alpha1.ToolSecret{
				{Name: "FORGE_TOKEN", SecretKeyRef: key("forge", "token"), Tools: []string{"git", "bash"}},
				{Name: "KEY", SecretKeyRef: key("ssh", "id"), As: v1alpha1.SecretAsFile, Tools: []string{"ssh"}, Redact: ptr.To(false)},
			}},
		})
	got := f.run("env", "describe", "tools")
	got.expect(t, 0, "Secrets: FORGE_TOKEN: key token of Secret forge, for git, bash KEY: key id of Secret ssh, as a file, for ssh; not redacted")
	if strings.Contains(got.out, "example-value") {
		t.Errorf("the value is shown: %s", got.out)
	}
}
