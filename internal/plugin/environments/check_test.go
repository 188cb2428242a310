package environments

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestCheckShowsTheQueue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		queues       []string
		wanted, want string
	}{
		"none":                   {},
		"the environment's":      {queues: []string{"q", "a"}, want: "q"},
		"the same":               {queues: []string{"q"}, wanted: "q", want: "q"},
		"the call's":             {queues: []string{"q", "a", "b"}, wanted: "b", want: "b, chosen by the call"},
		"one that isn't offered": {queues: []string{"q", "a"}, wanted: "b", want: "q: the environment doesn't offer b"},
		"one where none is":      {wanted: "b", want: "none: the environment doesn't offer b"},
	} {
		env, v := &v1alpha1.ExecutionEnvironment{}, &verdict{call: &v1alpha1.ToolCall{}}
		env.Spec.Queues = tc.queues
		v.call.Labels = map[string]string{jobspec.LabelQueue: tc.wanted}
		if got := v.queue(env); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// The result of check as an object has what its text has.
func TestCheckAsAnObject(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy(func(p *v1alpha1.ExecutionPolicySpec) { p.Binaries = &v1alpha1.BinariesPolicy{Allowed: []string{"ls"}} })
	f.Environment("tools", true)
	for line, want := range map[string]plugintest.Printed{
		"-o jsonpath={.kind},{.allowed},{.denied},{.tool},{.environment},{.command},{.walls.Network},{.timeoutSeconds} -- ls x": {Out: "Check,yes,false,ls,tools,ls x,held by the runner: every host outside the cluster that isn't denied,120"},
		"-o jsonpath={.allowed},{.denied},{.reason} -- git":                                                                     {Out: "no,true,BinaryNotAllowed", Code: 126},
		"-o jsonpath={.allowed},{.denied},{.reason} --environment none -- ls":                                                   {Out: "no,false,EnvironmentNotFound", Code: 125},
		"-o name -- ls": {Out: "check.cli.toolcall.dev/check\n"},
	} {
		if got := f.Run(append([]string{"check"}, strings.Fields(line)...)...); got != want {
			t.Errorf("check %s: %+v", line, got)
		}
	}
}

func TestCheckReadsStandardInputOnce(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"--stdin --policy-file - -- cat", "--code python -f - --policy-file -"} {
		out, errs, code := plugintest.CommandAt(plugintest.Offline(t), append([]string{"check"}, strings.Fields(line)...)...)
		if code != 125 || out != "" || !strings.Contains(errs, "standard input can be the policy (--policy-file -) or what the call reads (--stdin, -f -), not both") {
			t.Errorf("%s: exit code %d, %s%s", line, code, out, errs)
		}
	}
}

// A call is judged under a policy in a file, or one that is named, in place of the environment's.
func TestCheckUnderAnotherPolicy(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy()
	f.Environment("tools", true)
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const head = "apiVersion: toolcall.dev/v1alpha1\nkind: ExecutionPolicy\nspec: "
	write(head + "{binaries: {mode: Enforced, allowed: [cat]}}")
	check := func(args ...string) plugintest.Printed { return f.Run(append([]string{"check"}, args...)...) }
	check("--", "ls").Expect(t, 0, "Allowed: yes")
	check("--policy-file", file, "--", "ls").Expect(t, 126, "BinaryNotAllowed", "use one of cat", "Policy: the given one")
	check("--policy-file", file, "--", "cat").Expect(t, 0, "Allowed: yes", "Policy: the given one", "Programs: held by the kernel: cat")
	check("--policy", f.Namespace, "--", "ls").Expect(t, 0, "Policy: "+f.Namespace)
	check("--policy", "none-"+f.Namespace, "--", "ls").Expect(t, 125, `"none-`+f.Namespace+`" not found`)
	check("--policy", "", "--", "ls").Expect(t, 125, "--policy: give a name")
	check("--policy-file", "", "--", "ls").Expect(t, 125, "--policy-file: give a name")
	check("--policy", "a", "--policy-file", file, "--", "ls").Expect(t, 125, "policy policy-file")
	for text, want := range map[string]string{
		head + "{binary: {}}":          `unknown field "spec.binary"`,
		"kind: ConfigMap":              "there is no ExecutionPolicy of toolcall.dev/v1alpha1",
		strings.Repeat("#", 4<<20+1):   "the file has more than 4194304 bytes",
		head + "{access: \"Anybody\"}": "",
	} {
		write(text)
		check("--policy-file", file, "--", "ls").Expect(t, 125, want)
	}
	user := f.User([]string{"toolcall-user"}, "cat")
	write(head + "{}")
	f.As(user)("check", "--policy-file", file, "--", "cat").Expect(t, 125, "the right to create executionpolicies")
}
