package environments

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/plugintest"
)

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
			"Warning: binaries.allowWritable is true, and whatever a call puts where an entry of the list leads may then run",
			"Programs: held by the kernel: ls, /workspace/bin/, and bash, which the environment gives the call: it runs though it isn't listed; what the call writes to a listed path may start too",
			"Reading: held by the kernel: /workspace, /data, and what programs need Writing: held by the kernel: /data, devices and /dev/shm",
		}, "not held:"},
		"the shell's list, and none is there": {func(p *v1alpha1.ExecutionPolicySpec) {
			p.Shell.Commands = v1alpha1.ShellAllowlisted
		}, []string{"--shell", "ls | id"}, []string{
			"Warning: shell.commands is Allowlisted, and the list is empty and Permissive, so that any program may run", "Programs: not held: any program may start",
		}, "held by the kernel:"},
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
			f := plugintest.New(t)
			f.Policy(c.policy)
			f.Environment("tools", true)
			got := f.Run(append([]string{"check"}, c.args...)...)
			got.Expect(t, 0, append(c.want, "Allowed: yes")...)
			if strings.Contains(got.Out, c.not) {
				t.Errorf("%q is in\n%s", c.not, got.Out)
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
	f := plugintest.New(t)
	f.Policy(namePolicy)
	f.Environment("a", true)
	f.Environment("b", false)
	if got := f.Run("env", "list"); got.Err != "" {
		t.Errorf("without a problem it says %q", got.Err)
	}
	const missing = `policy "p" has the kernel hold what calls do, and 1 of 2 nodes that runners were on lately can't: worker-2 gives no Landlock`
	env := f.ReadEnvironment("a")
	before := env.DeepCopy()
	meta.SetStatusCondition(&env.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonIsolationUnavailable, Message: missing,
	})
	if err := f.Client.Status().Patch(t.Context(), env, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	policy := &v1alpha1.ExecutionPolicy{}
	if err := f.Client.Get(t.Context(), client.ObjectKey{Name: f.Namespace}, policy); err != nil {
		t.Fatal(err)
	}
	old := policy.DeepCopy()
	meta.SetStatusCondition(&policy.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionWeak, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWarnings, Message: "nothing holds python3",
	})
	if err := f.Client.Status().Patch(t.Context(), policy, client.MergeFrom(old)); err != nil {
		t.Fatal(err)
	}
	got := f.Run("env", "list")
	got.Expect(t, 0, "False (IsolationUnavailable)", "note: environment a is not ready: IsolationUnavailable: "+missing)
	if want := "note: policy " + f.Namespace + " is weaker than it looks: nothing holds python3\n"; strings.Count(got.Err, want) != 1 {
		t.Errorf("%q isn't there once: %s", want, got.Err)
	}
	f.Run("check", "--", "ls").Expect(t, 0, "Not ready: IsolationUnavailable: "+missing)

	const unheld = v1alpha1.MessageReadyBut + `"/bin/busybox" of the image runs its applets without executing them, so to list one of them is to list all`
	env = f.ReadEnvironment("a")
	before = env.DeepCopy()
	meta.SetStatusCondition(&env.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: unheld,
	})
	if err := f.Client.Status().Patch(t.Context(), env, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	f.Run("check", "--", "ls").Expect(t, 0, "Warning: "+unheld)
	f.Run("env", "describe", "a").Expect(t, 0, "Warning: "+unheld)
	f.Run("env", "list").Expect(t, 0, "note: environment a: "+unheld)
	f.Run("env", "list", "-A").Expect(t, 0, "note: environment "+f.Namespace+"/a: "+unheld)
}
