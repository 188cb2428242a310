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
	enforced := `{"access":"Open","binaries":{"mode":"Enforced","enforcement":"Name","allowed":["env","ls"]}}`
	shell := `{"access":"Open","shell":{"enabled":true,"commands":"Allowlisted"},"binaries":{"mode":"Enforced","enforcement":"Name","allowed":["ls"]}}`
	long := 5 * time.Second
	for _, c := range []struct {
		policy, reason, contains string
		action                   *Action
		env                      []v1alpha1.CallEnvVar
	}{
		{open, v1alpha1.ReasonEmptyCommand, "binary", structured(" "), nil},
		{open, v1alpha1.ReasonBinaryPathTraversal, `".."`, structured("a..b"), nil},
		{open, v1alpha1.ReasonBinaryNotBareName, "slash", structured("/bin/ls"), nil},
		{enforced, v1alpha1.ReasonBinaryNotAllowed, "use one of env, ls, or", structured("id"), nil},
		{`{"access":"Open","binaries":{"mode":"Enforced"}}`, v1alpha1.ReasonBinaryNotAllowed, ": the list is empty, so have", structured("id"), nil},
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

// Without a list there is nothing to compare names with. One that isn't enforced holds for shells.
func TestAListHoldsForShellsWithoutEnforcedToo(t *testing.T) {
	t.Parallel()
	for list, allowed := range map[string]bool{``: true, `"allowed":["env","ls"],`: false} {
		for _, enforcement := range []string{"Kernel", "Name"} {
			policy, err := Compile(specFrom(t, `{"access":"Open","shell":{"enabled":true,"commands":"Allowlisted"},"binaries":{`+list+`"enforcement":"`+enforcement+`"}}`))
			if err != nil {
				t.Fatal(err)
			}
			if denial := checkScript(policy, "id"); (denial == nil) != allowed {
				t.Errorf("%s, %s: %+v", enforcement, list, denial)
			}
		}
	}
}

func TestMessagesAreTheSameEveryTime(t *testing.T) {
	t.Parallel()
	for range 20 {
		for _, script := range []string{"f() { a; b; c; }; f", "id", "PATH=x id"} {
			first, again := checkScript(namePolicy(t, "ls"), script), checkScript(namePolicy(t, "ls"), script)
			if first == nil || again.Message != first.Message {
				t.Fatalf("%q: %+v, %+v", script, first, again)
			}
		}
	}
}
