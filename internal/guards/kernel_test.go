package guards

import (
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

func kernelPolicy(t testing.TB, names ...string) *Policy {
	t.Helper()
	enabled := true
	policy, err := Compile(&v1alpha1.ExecutionPolicySpec{
		Access:    v1alpha1.AccessOpen,
		Shell:     &v1alpha1.ShellPolicy{Enabled: &enabled, Commands: v1alpha1.ShellAllowlisted},
		Binaries:  &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Allowed: names},
		Arguments: &v1alpha1.ArgumentsPolicy{Metacharacters: v1alpha1.MetacharactersAllow},
	})
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func TestKernelIsTheDefault(t *testing.T) {
	t.Parallel()
	for _, spec := range []*v1alpha1.ExecutionPolicySpec{nil, {}, {Binaries: &v1alpha1.BinariesPolicy{}}} {
		policy, err := Compile(spec)
		if err != nil || policy.Enforcement() != v1alpha1.EnforcementKernel || policy.HoldsPrograms() {
			t.Errorf("%+v: %v, %v", spec, policy.Enforcement(), err)
		}
	}
	if kernel, text := kernelPolicy(t), allowlistedPolicy(t); !kernel.HoldsPrograms() || text.Enforcement() != v1alpha1.EnforcementText {
		t.Error("the enforcement of a policy is lost")
	}
}

func TestUnderKernelOnlyNamesThatAreWrittenOutAreRefused(t *testing.T) {
	t.Parallel()
	policy := kernelPolicy(t, "ls", "bash", "python3", "/opt/tools/lint", "/srv/bin/")
	bare := kernelPolicy(t, "ls", "bash", "python3", "/opt/tools/lint")
	for _, script := range []string{
		"ls", "c=id; $c", "eval id", "eval $x", "python3 -c 'import os'", "bash -c id", "bash script.sh", "f() { ls; }; f", "if true; then f() { ls; }; fi; f", "g; g() { ls; }",
		"source venv/bin/activate; deactivate", ". ./lib.sh && helper", "./gradlew test", "node_modules/.bin/tsc", "../x", "/usr/bin/ls -l", "/opt/tools/lint", "lint .", "/bin/bash -c ls",
		"PATH=$PATH:/x ls", "IFS= read -r x", "echo $((x))", "declare -A m; m[a]=1", "ls <(ls)", "cat() { ls; }; cat", "mapfile -t a < f", "shopt -s globstar", "trap 'id' EXIT", "ls \\\n -l", "echo 'unclosed", "x=1", "[[ -v x ]]", "\"$x\" y", "${x}id", "i$x", "~/bin/x", "coproc ls", "",
		strings.Repeat("(", 5000), "kill 1", "command -v id", "builtin cd", "type id", "env2=1 ls", "let x=1", "time ls",
	} {
		if denial := checkScript(bare, script+"\n:"); denial != nil {
			t.Errorf("%q: %s", script, denial.Message)
		}
	}
	for script, position := range map[string]string{
		"id": "line 1, column 1", "ls && id": "line 1, column 7", "ls\necho $(id)": "line 2, column 8", "'i'd": "line 1, column 1", "\\id": "line 1, column 1", "f() { id; }": "line 1, column 7",
		"if ls; then id; fi": "line 1, column 13", "/usr/bin/id": "line 1, column 1", "/srv/../bin/id": "line 1, column 1", "ls | id": "line 1, column 6", "FOO=1 id": "line 1, column 7", "ls <(id)": "line 1, column 6",
	} {
		denial := checkScript(bare, script)
		if denial == nil || denial.Reason != v1alpha1.ReasonShellCommandNotAllowed || !strings.HasPrefix(denial.Message, position+": the program ") {
			t.Errorf("%q: %+v", script, denial)
		}
	}
	// Any name may lead to a listed directory.
	for _, script := range []string{"id", "/srv/bin/x", "/srv/bin/sub/x"} {
		if denial := checkScript(policy, script); denial != nil {
			t.Errorf("%q: %s", script, denial.Message)
		}
	}
	if denial := policy.Check(Input{Action: &Action{Type: v1alpha1.ActionShell, Command: "id"}, Shell: []string{"python3", "-c"}}); denial != nil {
		t.Errorf("what isn't a shell's script is read as one: %+v", denial)
	}
}

func TestStructuredCallsNameListedProgramsByNameOrPath(t *testing.T) {
	t.Parallel()
	for _, enforcement := range []v1alpha1.Enforcement{v1alpha1.EnforcementKernel, v1alpha1.EnforcementText} {
		policy := kernelPolicy(t, "env", "/opt/tools/lint", "/srv/bin/")
		policy.binaries.enforcement = enforcement
		for binary, reason := range map[string]string{
			"env": "", "/opt/tools/lint": "", "/srv/bin/x": "", "/srv/bin/a/b": "", "lint": v1alpha1.ReasonBinaryNotAllowed, "id": v1alpha1.ReasonBinaryNotAllowed, "/usr/bin/env": v1alpha1.ReasonBinaryNotBareName, "./env": v1alpha1.ReasonBinaryNotBareName,
			"/srv/bin/../x": v1alpha1.ReasonBinaryPathTraversal, "/srv/bin//x": v1alpha1.ReasonBinaryNotBareName, "/srv/bin/": v1alpha1.ReasonBinaryNotBareName, "/srv/bin": v1alpha1.ReasonBinaryNotBareName,
		} {
			denial := policy.Check(Input{Action: structured(binary)})
			if got := denial; (got == nil) != (reason == "") || got != nil && got.Reason != reason {
				t.Errorf("%s, %s: want %q, got %+v", enforcement, binary, reason, got)
			}
		}
		launch := policy.Check(Input{Action: structured("env", "id")})
		if (launch == nil) != (enforcement == v1alpha1.EnforcementKernel) {
			t.Errorf("%s: env id: %+v", enforcement, launch)
		}
	}
}

func TestVariablesThatStartProgramsAreTheKernelsUnderKernel(t *testing.T) {
	t.Parallel()
	for name, reason := range map[string]string{"TAR_OPTIONS": "", "GIT_DIR": "", "NODE_ENV": "", "LD_PRELOAD": v1alpha1.ReasonEnvNotAllowed, "BASH_ENV": v1alpha1.ReasonEnvNotAllowed} {
		denial := kernelPolicy(t, "ls").Check(Input{Action: structured("ls"), Env: []v1alpha1.CallEnvVar{{Name: name, Value: "x"}}})
		if (denial == nil) != (reason == "") {
			t.Errorf("%s: %+v", name, denial)
		}
	}
	for name, allowed := range map[string]bool{"NODE_ENV": true, "GIT_AUTHOR_NAME": true, "FOO": true, "GIT_ANYTHING_NEW": false, "ZIP": false, "SYSTEM_WGETRC": false, "GNUPGHOME": false, "BAT_PAGER": false, "PYTHONBREAKPOINT": false, "PERLLIB": false, "_JAVA_OPTIONS": false, "HOME": false, "POSIXLY_CORRECT": false} {
		denial := launchPolicy(t).Check(Input{Action: structured("ls"), Env: []v1alpha1.CallEnvVar{{Name: name, Value: "x"}}})
		if (denial == nil) != allowed {
			t.Errorf("under Text, %s: %+v", name, denial)
		}
	}
}

func TestWarningsNameWhatTextDoesNotHold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		enforcement v1alpha1.Enforcement
		names       []string
		want        []string
	}{
		{v1alpha1.EnforcementText, []string{"ls", "git", "/usr/bin/sort", "ssh", "cd", "["}, nil},
		{v1alpha1.EnforcementText, []string{"ls", "frobnicate", "/srv/bin/", "/opt/x"}, []string{"no table knows", "frobnicate, /srv/bin/, /opt/x"}},
		{v1alpha1.EnforcementText, []string{"python3.11", "ls", "npm", "source"}, []string{"run code", "python3.11, npm, source"}},
		{v1alpha1.EnforcementKernel, []string{"python3", "frobnicate"}, nil},
	} {
		policy := allowlistedPolicy(t)
		compiled, err := Compile(&v1alpha1.ExecutionPolicySpec{Binaries: &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Enforcement: c.enforcement, Allowed: c.names}})
		if err != nil || len(policy.Warnings()) != 0 {
			t.Fatal(err, policy.Warnings())
		}
		warnings := strings.Join(compiled.Warnings(), "\n")
		if (warnings == "") != (c.want == nil) {
			t.Errorf("%v: %q", c.names, warnings)
		}
		for _, text := range c.want {
			if !strings.Contains(warnings, text) {
				t.Errorf("%v: %q lacks %q", c.names, warnings, text)
			}
		}
	}
}

func TestAPolicyWarnsOfProgramsThatRunOthersUnseen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		binaries v1alpha1.BinariesPolicy
		warns    bool
	}{
		"unset":   {v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced}, false},
		"Deny":    {v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, MultiCall: v1alpha1.MultiCallDeny}, false},
		"Allow":   {v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, MultiCall: v1alpha1.MultiCallAllow}, true},
		"no list": {v1alpha1.BinariesPolicy{MultiCall: v1alpha1.MultiCallAllow}, false},
	} {
		policy, err := Compile(&v1alpha1.ExecutionPolicySpec{Binaries: &c.binaries})
		if err != nil || strings.Contains(strings.Join(policy.Warnings(), " "), "binaries.multiCall is Allow") != c.warns {
			t.Errorf("%s: %v, %v", name, policy.Warnings(), err)
		}
	}
}
