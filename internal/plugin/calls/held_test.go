package calls

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/testing/plugintest"
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
	f := plugintest.New(t)
	f.Run("run", "--detach", "--name", "c", "--network-host", "a.example.com", "--network-host", "192.0.2.0/24", "--", "ls").Expect(t, 0)
	f.End("c", heldCall(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, 3))
	f.Run("describe", "c").Expect(t, 0, "Network: "+
		"Narrowed to: a.example.com, 192.0.2.0/24 "+
		"Mode: Listed "+
		"Refused: b.example.com (lookup), 2 times "+
		"Refused: b.example.com:443, once "+
		"Refused: [2001:db8::7]:22, 3 times "+
		"Refused: and other hosts, 7 times "+
		"Redactions: TOKEN: in stdout, once TOKEN: in message, 4 times Conditions:")
	f.Detached("listed")
	f.End("listed", heldCall(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, 3))
	f.Run("describe", "listed").Expect(t, 0, "Network: Mode: Listed Allowed: a.example.com, 192.0.2.0/24 Refused: b.example.com (lookup), 2 times")
	f.Run("describe", "c", "-o", "jsonpath={.status.network.denied[1].host} {.status.redactions[1].count}").Expect(t, 0, "b.example.com 4")
	f.Detached("free")
	f.End("free", plugintest.Succeeded())
	if got := f.Run("describe", "free"); strings.Contains(got.Out, "Network:") || strings.Contains(got.Out, "Redactions:") {
		t.Errorf("a call without a network in its status shows one: %s", got.Out)
	}
}

// A command that ended badly after a host was refused says which; one that got along without it doesn't.
func TestRunAndWaitSayWhichHostWasRefused(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if call.Name == "fine" {
			return plugintest.Finished(heldCall(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, 0))
		}
		return plugintest.Finished(heldCall(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, 3))
	})
	f.Run("run", "--name", "refused", "--", "ls").Expect(t, 3, "call refused: Failed (NonZeroExit): "+hostRefusal)
	f.Run("wait", "refused").Expect(t, 3, "refused Failed NonZeroExit exit 3", "call refused: "+hostRefusal)
	if got := f.Run("run", "-q", "--name", "fine", "--", "ls"); got.Err != "" {
		t.Errorf("got %q", got.Err)
	}
}

const refusal = `The command exited with code 3. "/usr/bin/curl" was not allowed to run: add it to binaries.allowed of policy "agents".`

// refusedCall is the end of a call whose command went on after refusals.
func refusedCall(phase v1alpha1.Phase, reason string, code int32) v1alpha1.ToolCallStatus {
	return v1alpha1.ToolCallStatus{
		Phase: phase, Reason: reason, ExitCode: ptr.To(code), Message: refusal,
		Executed: []v1alpha1.ExecutedProgram{{Path: "/usr/bin/python3.13", Count: 1}, {Path: "/usr/bin/dash", Count: 3}}, OmittedExecuted: 40,
		Refused: []v1alpha1.RefusedProgram{
			{Path: "/usr/bin/curl", Count: 2, Rule: "NotListed"}, {Path: "/lib/ld.so", Count: 1, Rule: "Loader"}, {Path: "/x", Count: 1, Rule: "FromTheFuture"},
		}, OmittedRefused: 5,
		Isolation: &v1alpha1.Isolation{
			User: new(int64(1000)), Seccomp: v1alpha1.SeccompFilter, UserNamespace: new(false), RuntimeClass: "gvisor", Network: v1alpha1.HeldNetworkPod,
			Way: v1alpha1.IsolationLandlock, LandlockABI: 7, Programs: true, Writes: true, Signals: true,
			NamesOnly: []string{"/bin/busybox"}, UnheldApplets: []string{"/bin/toybox"}, Writable: []string{"/workspace/bin/"}, NotFound: []string{"rg", "fd"},
		},
	}
}

func TestDescribeShowsProgramsAndWalls(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("c")
	f.End("c", refusedCall(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, 3))
	f.Run("describe", "c").Expect(t, 0, "Message: "+refusal, "Programs: "+
		"Executed: /usr/bin/python3.13, once "+
		"Executed: /usr/bin/dash, 3 times "+
		"Executed: and other programs, 40 times "+
		"Refused: /usr/bin/curl, 2 times (NotListed: the policy doesn't list it) "+
		"Refused: /lib/ld.so, once (Loader: a loader runs any file, so it can't be started by hand) "+
		"Refused: /x, once (FromTheFuture) "+
		"Refused: and other programs, 5 times "+
		"Isolation: User: 1000 User namespace: none, as far as can be seen inside Seccomp: Filter Runtime class: gvisor Network: Pod Programs: held by the kernel Reading: not held Writing: held by the kernel Signals: held by the kernel "+
		"Held by: Landlock Landlock: version 7 Told apart by name only: /bin/busybox Runs applets unseen: /bin/toybox Listed and writable: /workspace/bin/ Listed and not found: rg, fd")
	f.Detached("free")
	f.End("free", plugintest.Succeeded())
	if got := f.Run("describe", "free"); strings.Contains(got.Out, "Programs:") || strings.Contains(got.Out, "Isolation:") {
		t.Errorf("a call without rules has walls: %s", got.Out)
	}
}

func TestEveryRuleIsExplained(t *testing.T) {
	t.Parallel()
	all := []string{
		result.RuleNotListed, result.RuleInterpreter, result.RuleLoader, result.RuleName,
		result.RuleUnnamed, result.RuleChanged, result.RuleUnreadable, result.RuleUnreadableFile,
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(all)), slices.Sorted(maps.Keys(refusalText))); diff != "" {
		t.Error(diff)
	}
}

// A command that ended badly after a refusal says which program it was; one that got along without it doesn't.
func TestRunAndWaitSayWhatWasRefused(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		status := refusedCall(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, 3)
		switch call.Name {
		case "fine":
			status = refusedCall(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, 0)
		case "plain":
			status.Refused, status.Message = nil, "The command exited with code 3."
		}
		return plugintest.Finished(status)
	})
	f.Run("run", "--name", "refused", "--", "ls").Expect(t, 3, "call refused: Failed (NonZeroExit): "+refusal)
	f.Run("wait", "refused").Expect(t, 3, "refused Failed NonZeroExit exit 3", "call refused: "+refusal)
	for name, code := range map[string]int{"fine": 0, "plain": 3} {
		for _, args := range [][]string{{"run", "-q", "--name", name, "--", "ls"}, {"wait", name}} {
			got := f.Run(args...)
			got.Expect(t, code)
			if got.Err != "" {
				t.Errorf("%v says %q", args, got.Err)
			}
		}
	}
}
