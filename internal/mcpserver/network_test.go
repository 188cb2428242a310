package mcpserver

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/api/v1alpha1"
)

// A model reads which hosts its command may not reach, and what would let it, in both parts of the answer.
func TestHostsThatWereRefusedAreInTheAnswer(t *testing.T) {
	t.Parallel()
	denied := []v1alpha1.DeniedHost{{Host: "b.example.com", Count: 2}, {Host: "2001:db8::7", Port: 443, Count: 1}}
	for name, test := range map[string]struct {
		phase          v1alpha1.Phase
		reason, output string
	}{
		"a command that failed": {v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, "output of NonZeroExit"},
		"one that got along":    {v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, "output of Completed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.operate(func(*v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
				s := finishedStatus(test.phase, test.reason)
				s.Network = &v1alpha1.NetworkStatus{Mode: v1alpha1.NetworkListed, Denied: denied}
				return s
			})
			session := connected(t, newTestServer(t, f.local(), 8), nil)
			answer, result := use(t, session, "run_command", fields{"command": "curl", "network_hosts": []string{"a.example.com"}})
			if diff := cmp.Diff(denied, result.DeniedHosts); diff != "" {
				t.Error(diff)
			}
			text := textOf(answer)
			if !strings.HasPrefix(text, test.output+"\n\n[reason: ") || !strings.Contains(text, `, denied_hosts: "b.example.com" "[2001:db8::7]:443"`) {
				t.Errorf("the text is %q", text)
			}
			call := f.only("created", func(*v1alpha1.ToolCall) bool { return true })
			if n := call.Spec.Network; n == nil || !slices.Equal(n.Hosts, []string{"a.example.com"}) {
				t.Errorf("the call has the network %+v", n)
			}
		})
	}
}
