package plugin

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
)

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
			LandlockABI: 7, Programs: true, Writes: true, Signals: true,
			NamesOnly: []string{"/bin/busybox"}, UnheldApplets: []string{"/bin/toybox"}, Writable: []string{"/workspace/bin/"}, NotFound: []string{"rg", "fd"},
		},
	}
}

func TestDescribeShowsProgramsAndWalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("c")
	f.end("c", refusedCall(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, 3))
	f.run("describe", "c").expect(t, 0, "Message: "+refusal, "Programs: "+
		"Executed: /usr/bin/python3.13, once "+
		"Executed: /usr/bin/dash, 3 times "+
		"Executed: and other programs, 40 times "+
		"Refused: /usr/bin/curl, 2 times (NotListed: the policy doesn't list it) "+
		"Refused: /lib/ld.so, once (Loader: a loader runs any file, so it can't be started by hand) "+
		"Refused: /x, once (FromTheFuture) "+
		"Refused: and other programs, 5 times "+
		"Isolation: User: 1000 User namespace: none, as far as can be seen inside Seccomp: Filter Runtime class: gvisor Network: Pod Programs: held by the kernel Reading: not held Writing: held by the kernel Signals: held by the kernel "+
		"Landlock: version 7 Told apart by name only: /bin/busybox Runs applets unseen: /bin/toybox Listed and writable: /workspace/bin/ Listed and not found: rg, fd")
	f.detached("free")
	f.end("free", succeeded())
	if got := f.run("describe", "free"); strings.Contains(got.out, "Programs:") || strings.Contains(got.out, "Isolation:") {
		t.Errorf("a call without rules has walls: %s", got.out)
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
	f := newFixture(t)
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		status := refusedCall(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, 3)
		switch call.Name {
		case "fine":
			status = refusedCall(v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, 0)
		case "plain":
			status.Refused, status.Message = nil, "The command exited with code 3."
		}
		return finished(status)
	})
	f.run("run", "--name", "refused", "--", "ls").expect(t, 3, "call refused: Failed (NonZeroExit): "+refusal)
	f.run("wait", "refused").expect(t, 3, "refused Failed NonZeroExit exit 3", "call refused: "+refusal)
	for name, code := range map[string]int{"fine": 0, "plain": 3} {
		for _, args := range [][]string{{"run", "-q", "--name", name, "--", "ls"}, {"wait", name}} {
			got := f.run(args...)
			got.expect(t, code)
			if got.err != "" {
				t.Errorf("%v says %q", args, got.err)
			}
		}
	}
}

func TestCheckSaysWhichWallsWouldHold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy func(*v1alpha1.ExecutionPolicySpec)
		args   []string
		want   []string
		not    string
	}{
		"nothing": {func(*v1alpha1.ExecutionPolicySpec) {}, []string{"--", "ls"},
			[]string{"Walls: Programs: not held: any program may start Reading: not held Writing: not held Network: held by the runner: every host outside the cluster that isn't denied"}, "Signals"},
		"Kernel": {func(p *v1alpha1.ExecutionPolicySpec) {
			p.Binaries = &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Allowed: []string{"ls", "python3"}}
			p.Files = &v1alpha1.FilesPolicy{WritePaths: []string{"/workspace", "/tmp"}}
		}, []string{"--code", "python", "-f", "-"}, []string{
			"Programs: held by the kernel: ls, python3 Reading: not held, except that programs which aren't listed can't be read",
			"Writing: held by the kernel: /workspace, /tmp, devices and /dev/shm Signals: held by the kernel, from Linux 6.12 on Network: none, held by a filter",
		}, "Warning"},
		"Kernel by the shell's list": {func(p *v1alpha1.ExecutionPolicySpec) {
			p.Shell.Commands = v1alpha1.ShellAllowlisted
			p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls", "/workspace/bin/"}, AllowWritable: ptr.To(true)}
			p.Files = &v1alpha1.FilesPolicy{ReadPaths: []string{"/workspace"}, WritePaths: []string{"/data"}}
		}, []string{"--shell", "ls | ls"}, []string{
			"Programs: held by the kernel: ls, /workspace/bin/, and bash, which the environment gives the call: it runs though it isn't listed; what the call writes to a listed path may start too",
			"Reading: held by the kernel: /workspace, /data, and what programs need Writing: held by the kernel: /data, devices and /dev/shm",
		}, "Warning"},
		"multi-call programs": {func(p *v1alpha1.ExecutionPolicySpec) {
			p.Binaries = &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Allowed: []string{"ls"}, MultiCall: v1alpha1.MultiCallAllow}
		}, []string{"--", "ls"}, []string{
			"Warning: binaries.multiCall is Allow, and nothing holds what a listed multi-call program runs without executing it",
			"Programs: held by the kernel: ls; a multi-call program that runs its applets without executing them may run all of them Reading",
		}, "isn't listed"},
		"paths alone": {func(p *v1alpha1.ExecutionPolicySpec) {
			p.Files = &v1alpha1.FilesPolicy{ReadPaths: []string{}, WritePaths: []string{}}
		}, []string{"--", "ls"}, []string{
			"Programs: not held: any program may start Reading: held by the kernel: no path, and what programs need Writing: held by the kernel: no path, devices and /dev/shm Signals: held",
		}, "Warning"},
		"Name": {namePolicy, []string{"--shell", "ls"}, []string{
			"Warning: binaries.enforcement is Name, which is weak: the names of commands that are written out are compared with the list, and nothing holds what a listed program starts",
			"Programs: weak: the names that the call has written out are compared with the list, and nothing holds what a listed program starts: ls, python3 Reading: not held Writing: not held Network",
		}, "held by the kernel:"},
		"Name and a program": {namePolicy, []string{"--", "ls"}, []string{"Programs: not held: the call itself names a listed program, which may start any other"}, "held by the kernel:"},
		"Name and code":      {namePolicy, []string{"--code", "python", "-f", "-"}, []string{"Programs: not held: any program may start"}, "held by the kernel:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.policy(c.policy)
			f.environment("tools", true)
			got := f.run(append([]string{"check"}, c.args...)...)
			got.expect(t, 0, append(c.want, "Allowed: yes")...)
			if strings.Contains(got.out, c.not) {
				t.Errorf("%q is in\n%s", c.not, got.out)
			}
		})
	}
}

func namePolicy(p *v1alpha1.ExecutionPolicySpec) {
	p.Shell.Commands = v1alpha1.ShellAllowlisted
	p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls", "python3"}, Enforcement: v1alpha1.EnforcementName}
}

// What the operator found out about nodes and policies is said before a call meets it.
func TestProblemsOfEnvironmentsAreSaid(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.policy(namePolicy)
	f.environment("a", true)
	f.environment("b", false)
	if got := f.run("env", "list"); got.err != "" {
		t.Errorf("without a problem it says %q", got.err)
	}
	const missing = `policy "p" has the kernel hold what calls do, and 1 of 2 nodes that runners were on lately can't: worker-2 gives no Landlock`
	env := f.readEnvironment("a")
	before := env.DeepCopy()
	meta.SetStatusCondition(&env.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonIsolationUnavailable, Message: missing,
	})
	if err := f.client.Status().Patch(t.Context(), env, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	policy := &v1alpha1.ExecutionPolicy{}
	if err := f.client.Get(t.Context(), client.ObjectKey{Name: f.namespace}, policy); err != nil {
		t.Fatal(err)
	}
	old := policy.DeepCopy()
	meta.SetStatusCondition(&policy.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionWeak, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWarnings, Message: "nothing holds python3",
	})
	if err := f.client.Status().Patch(t.Context(), policy, client.MergeFrom(old)); err != nil {
		t.Fatal(err)
	}
	got := f.run("env", "list")
	got.expect(t, 0, "False (IsolationUnavailable)", "note: environment a is not ready: IsolationUnavailable: "+missing)
	if want := "note: policy " + f.namespace + " is weaker than it looks: nothing holds python3\n"; strings.Count(got.err, want) != 1 {
		t.Errorf("%q isn't there once: %s", want, got.err)
	}
	f.run("check", "--", "ls").expect(t, 0, "Not ready: IsolationUnavailable: "+missing)

	const unheld = v1alpha1.MessageReadyBut + `"/bin/busybox" of the image runs its applets without executing them, so to list one of them is to list all`
	env = f.readEnvironment("a")
	before = env.DeepCopy()
	meta.SetStatusCondition(&env.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: unheld,
	})
	if err := f.client.Status().Patch(t.Context(), env, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	f.run("check", "--", "ls").expect(t, 0, "Warning: "+unheld)
	f.run("env", "describe", "a").expect(t, 0, "Warning: "+unheld)
}
