package guards

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
)

func structured(binary string, args ...string) *Action {
	return &Action{Type: v1alpha1.ActionStructured, Binary: binary, Args: args}
}

func TestEveryReasonIsReached(t *testing.T) {
	t.Parallel()
	open := `{"access":"Open"}`
	enforced := `{"access":"Open","binaries":{"mode":"Enforced","enforcement":"Text","allowed":["env","ls"]}}`
	shell := `{"access":"Open","shell":{"enabled":true,"commands":"Allowlisted"},"binaries":{"mode":"Enforced","enforcement":"Text","allowed":["ls"]}}`
	long := 5 * time.Second
	for _, c := range []struct {
		policy, reason, contains string
		action                   *Action
		env                      []v1alpha1.CallEnvVar
	}{
		{open, v1alpha1.ReasonEmptyCommand, "binary", structured(" "), nil},
		{open, v1alpha1.ReasonBinaryPathTraversal, `".."`, structured("a..b"), nil},
		{open, v1alpha1.ReasonBinaryNotBareName, "slash", structured("/bin/ls"), nil},
		{enforced, v1alpha1.ReasonBinaryNotAllowed, "env, ls", structured("id"), nil},
		{enforced, v1alpha1.ReasonLaunchNotAllowed, `"id"`, structured("env", "id", "|"), nil},
		{open, v1alpha1.ReasonArgumentNotAllowed, "argument 1", structured("ls", "a", "b|c"), nil},
		{open, v1alpha1.ReasonEnvNotAllowed, "PATH", structured("ls"), []v1alpha1.CallEnvVar{{Name: "PATH"}}},
		{open, v1alpha1.ReasonEnvNotAllowed, "letters", structured("ls"), []v1alpha1.CallEnvVar{{Name: "BASH_FUNC_ls%%", Value: "() { id; }"}}},
		{open, v1alpha1.ReasonEnvNotAllowed, "NUL", structured("ls"), []v1alpha1.CallEnvVar{{Name: "A", Value: "x\x00y"}}},
		{open, v1alpha1.ReasonShellDisabled, "shell.enabled", &Action{Type: v1alpha1.ActionShell}, nil},
		{shell, v1alpha1.ReasonEmptyCommand, "empty", &Action{Type: v1alpha1.ActionShell, Command: "\n"}, nil},
		{shell, v1alpha1.ReasonShellCommandNotAllowed, `line 2, column 5: the program "id"`, &Action{Type: v1alpha1.ActionShell, Command: "ls\nls; id"}, nil},
		{shell, v1alpha1.ReasonShellNotParseable, "line 1, column 6", &Action{Type: v1alpha1.ActionShell, Command: "echo 'x"}, nil},
		{shell, v1alpha1.ReasonEnvNotAllowed, "BASH_ENV", &Action{Type: v1alpha1.ActionShell, Command: "ls"}, []v1alpha1.CallEnvVar{{Name: "BASH_ENV"}}},
		{`{"access":"Open","code":{"enabled":false}}`, v1alpha1.ReasonCodeDisabled, "code.enabled", &Action{Type: v1alpha1.ActionCode}, nil},
		{open, v1alpha1.ReasonLanguageNotAllowed, "python", &Action{Type: v1alpha1.ActionCode, Language: "ruby"}, nil},
		{open, v1alpha1.ReasonModuleNotAllowed, `"os"`, &Action{Type: v1alpha1.ActionCode, Language: "python", Source: "import os"}, nil},
		{open, v1alpha1.ReasonModuleNotAllowed, "utf-7", &Action{Type: v1alpha1.ActionCode, Language: "python", Source: "# coding: utf-7"}, nil},
		{open, v1alpha1.ReasonNetworkNotAllowed, "requests", &Action{Type: v1alpha1.ActionCode, Language: "python", Source: "import requests"}, nil},
		{open, v1alpha1.ReasonNetworkNotAllowed, "asks", &Action{Type: v1alpha1.ActionCode, Language: "python", Network: true}, nil},
		{`{"access":"Open","code":{"maxExecutionMilliseconds":4999}}`, v1alpha1.ReasonExecutionTimeTooLong, "5000 ms", &Action{Type: v1alpha1.ActionCode, Language: "python", WantedTime: &long}, nil},
		{open, v1alpha1.ReasonSourceTooLarge, "65537", &Action{Type: v1alpha1.ActionCode, Language: "python", Source: strings.Repeat("#", 65537)}, nil},
		{open, v1alpha1.ReasonGuardError, "no action", nil, nil},
		{open, v1alpha1.ReasonGuardError, "Other", &Action{Type: "Other"}, nil},
	} {
		policy, err := Compile(specFrom(t, c.policy))
		if err != nil {
			t.Fatal(err)
		}
		denial := policy.Check(Input{Action: c.action, Env: c.env})
		if denial == nil || denial.Reason != c.reason || !strings.Contains(denial.Message, c.contains) {
			t.Errorf("want %s with %q, got %+v", c.reason, c.contains, denial)
		}
	}
}

func TestAccessIsAskedOnceAndFailsClosed(t *testing.T) {
	t.Parallel()
	policy, err := Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	caller := &v1alpha1.Requester{Username: "alice"}
	asked := 0
	check := func(caller *v1alpha1.Requester, mayUse func(string) (bool, error)) string {
		denial := policy.Check(Input{Action: structured("ls"), Requester: caller, MayUse: mayUse})
		if denial == nil {
			return ""
		}
		return denial.Reason
	}
	allow := func(tool string) (bool, error) { asked++; return tool == "ls", nil }
	for name, c := range map[string]struct{ got, want string }{
		"a requester that may":     {check(caller, allow), ""},
		"a requester that may not": {check(caller, func(string) (bool, error) { return false, nil }), v1alpha1.ReasonAgentNotAllowed},
		"no requester":             {check(nil, allow), v1alpha1.ReasonAgentNotAllowed},
		"a requester without name": {check(&v1alpha1.Requester{}, allow), v1alpha1.ReasonAgentNotAllowed},
		"nobody to ask":            {check(caller, nil), v1alpha1.ReasonGuardError},
		"an error":                 {check(caller, func(string) (bool, error) { return true, errors.New("down") }), v1alpha1.ReasonGuardError},
		"a panic":                  {check(caller, func(string) (bool, error) { panic("x") }), v1alpha1.ReasonGuardError},
	} {
		if c.got != c.want {
			t.Errorf("%s: want %q, got %q", name, c.want, c.got)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

func TestADenialOfAccessListsWhatElseThePolicyAllows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy string
		action *Action
		want   string
	}{
		"programs":           {`{"binaries":{"allowed":["git","ls","curl"]}}`, structured("curl"), "or another tool, of which the policy allows git, ls"},
		"many programs":      {`{"binaries":{"allowed":["` + strings.Join(manyNames(30), `","`) + `"]}}`, structured("curl"), " more"},
		"languages":          {`{"code":{"languages":["python","ruby"]}}`, &Action{Type: v1alpha1.ActionCode, Language: "python", Source: "1"}, "of which the policy allows ruby"},
		"no other":           {`{}`, &Action{Type: v1alpha1.ActionCode, Language: "python", Source: "1"}, "or another tool"},
		"any program":        {`{}`, structured("curl"), "or another tool"},
		"a shell":            {`{"shell":{"enabled":true},"binaries":{"allowed":["git"]}}`, &Action{Type: v1alpha1.ActionShell, Command: "git status"}, "or another tool"},
		"a line as a binary": {`{"binaries":{"allowed":["git"]}}`, structured("ls -l"), "or another tool, of which the policy allows git; binary is one program"},
	} {
		policy, err := Compile(specFrom(t, c.policy))
		if err != nil {
			t.Fatal(err)
		}
		denial := policy.Check(Input{Action: c.action, Requester: &v1alpha1.Requester{Username: "alice"}, MayUse: func(string) (bool, error) { return false, nil }})
		if denial == nil || denial.Reason != v1alpha1.ReasonAgentNotAllowed || !strings.Contains(denial.Message, c.want) || len(denial.Message) > 1000 {
			t.Errorf("%s: %+v", name, denial)
		}
		if denial != nil && c.want == "or another tool" && !strings.HasSuffix(denial.Message, c.want) {
			t.Errorf("%s: %s", name, denial.Message)
		}
	}
}

func manyNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("program", i))
	}
	return names
}

func TestVariablesThatStartProgramsAreKeptFromListedLaunchers(t *testing.T) {
	t.Parallel()
	env := []v1alpha1.CallEnvVar{{Name: "TAR_OPTIONS", Value: "--checkpoint-action=exec=id"}}
	denial := launchPolicy(t).Check(Input{Action: structured("tar", "cf", "a", "."), Env: env})
	if denial == nil || denial.Reason != v1alpha1.ReasonEnvNotAllowed {
		t.Errorf("%+v", denial)
	}
	denial = launchPolicy(t).Check(Input{Action: structured("bash", "-c", "ls"), Env: []v1alpha1.CallEnvVar{{Name: "POSIXLY_CORRECT"}}})
	if denial == nil || denial.Reason != v1alpha1.ReasonLaunchNotAllowed {
		t.Errorf("%+v", denial)
	}
	permissive, err := Compile(specFrom(t, `{"access":"Open"}`))
	if err != nil {
		t.Fatal(err)
	}
	if denial := permissive.Check(Input{Action: structured("tar", "cf", "a", "."), Env: env}); denial != nil {
		t.Errorf("%+v", denial)
	}
}

func TestAllowlistedNeedsBash(t *testing.T) {
	t.Parallel()
	policy := allowlistedPolicy(t, "ls")
	for shell, allowed := range map[string]bool{
		"": true, "bash -c": true, "/bin/bash -c": true, "bash -ec": true, "bash -euo pipefail -c": true, "bash --norc --noprofile -c": true, "/usr/bin/bash -e -c": true,
		"sh -c": false, "/bin/sh -c": false, "dash -c": false, "zsh -c": false, "bash": false, "bash -lc": false, "bash -ic": false, "bash -l -c": false, "bash --login -c": false,
		"bash --rcfile x -c": false, "bash -O extglob -c": false, "bash -s": false, "env bash -c": false, "bash -c x": false, "bash --posix -c": false, "bash -o posix -c": false, "bash -c -": false,
	} {
		denial := policy.Check(Input{Action: &Action{Type: v1alpha1.ActionShell, Command: "ls"}, Shell: strings.Fields(shell)})
		if (denial == nil) != allowed {
			t.Errorf("%q: %+v", shell, denial)
		}
	}
}

func TestVariablesOfTheCallThatChangeHowBashReads(t *testing.T) {
	t.Parallel()
	policy := allowlistedPolicy(t, "ls", "echo", "find")
	for _, c := range []struct {
		name, value, script string
		allowed             bool
	}{
		{"POSIXLY_CORRECT", "1", "ls", false}, {"BASH_COMPAT", "4.2", "ls", false}, {"LC_ALL", "zh_CN.GBK", "echo é", false}, {"LC_ALL", "zh_CN.GBK", "ls", true},
		{"LC_ALL", "C.UTF-8", "echo é", true}, {"LANG", "C", "echo é", true}, {"FOO", "a[$(id)]", "echo $FOO", true}, {"FOO", "a[$(id)]", "echo $((FOO))", false},
		{"HOME", "-exec", "find ~ -maxdepth 0", false}, {"HOME", "-exec", "find $HOME", false}, {"FOO", "x", "find ~ -maxdepth 0", true},
	} {
		denial := policy.Check(Input{
			Action: &Action{Type: v1alpha1.ActionShell, Command: c.script}, Env: []v1alpha1.CallEnvVar{{Name: c.name, Value: c.value}},
		})
		if (denial == nil) != c.allowed {
			t.Errorf("%+v: %+v", c, denial)
		}
	}
}

func TestPermissiveWithoutAListStillReadsTheScript(t *testing.T) {
	t.Parallel()
	policy, err := Compile(specFrom(t, `{"access":"Open","shell":{"enabled":true,"commands":"Allowlisted"},"binaries":{"enforcement":"Text"}}`))
	if err != nil {
		t.Fatal(err)
	}
	for script, allowed := range map[string]bool{
		"anything --at all": true, "python3 x.py": true, "env id": true, "$x": false, "eval $x": false, "/bin/ls": false, "PATH=x ls": false, "echo '": false,
	} {
		if denial := checkScript(policy, script); (denial == nil) != allowed {
			t.Errorf("%q: %+v", script, denial)
		}
	}
}

func TestAListHoldsForShellsWithoutEnforcedToo(t *testing.T) {
	t.Parallel()
	policy, err := Compile(specFrom(t, `{"access":"Open","shell":{"enabled":true,"commands":"Allowlisted"},"binaries":{"enforcement":"Text","allowed":["env","ls"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if denial := checkScript(policy, "env id"); denial == nil || denial.Reason != v1alpha1.ReasonShellCommandNotAllowed {
		t.Errorf("%+v", denial)
	}
	if denial := checkCall(policy, []string{"env", "id"}); denial != nil {
		t.Errorf("launchers are checked without Enforced: %+v", denial)
	}
}

func TestMessagesAreTheSameEveryTime(t *testing.T) {
	t.Parallel()
	for range 20 {
		policy := allowlistedPolicy(t, usualList...)
		for _, script := range []string{"f() { a; b; c; }; f; a() { ls; }; b() { ls; }; c() { ls; }", "id", "env PATH=x ls"} {
			first := checkScript(policy, script)
			if again := checkScript(allowlistedPolicy(t, usualList...), script); first == nil || again.Message != first.Message {
				t.Fatalf("%q: %+v, %+v", script, first, again)
			}
		}
	}
}
