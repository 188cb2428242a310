package e2e

import (
	"testing"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// A denial is the call's end: with the reason, a message that says what would pass, an Event, and no Job.
func TestDenials(t *testing.T) {
	coldFirst(t, testDenials, waySession)
}

func testDenials(t *testing.T, w way) {
	strict := w.newSpace(t, func(p *v1alpha1.ExecutionPolicySpec) {
		p.Shell = &v1alpha1.ShellPolicy{Enabled: ptr.To(true), Commands: v1alpha1.ShellAllowlisted}
		p.Binaries = &v1alpha1.BinariesPolicy{Mode: v1alpha1.BinariesEnforced, Enforcement: v1alpha1.EnforcementName, Allowed: []string{"ls", "cat", "xargs"}}
		p.Code = &v1alpha1.CodePolicy{MaxExecutionMilliseconds: ptr.To(int64(1000)), MaxScanBytes: ptr.To(int32(64))}
	})
	closed := w.newSpace(t, func(p *v1alpha1.ExecutionPolicySpec) {
		p.Shell = nil
		p.Code = &v1alpha1.CodePolicy{Enabled: ptr.To(false)}
	})
	ruled := w.newSpace(t, func(p *v1alpha1.ExecutionPolicySpec) {
		p.Rules = []v1alpha1.PolicyRule{{Name: "no-id", Expression: `action.binary == "id"`, Effect: v1alpha1.RuleDeny, Message: "use whoami"}}
	})
	withPath := structured("ls")
	withPath.Env = []v1alpha1.CallEnvVar{{Name: "LD_PRELOAD", Value: "/tmp/x.so"}}
	wantsNetwork := code("python", "1")
	wantsNetwork.Code.NetworkAccess = ptr.To(true)
	for name, test := range map[string]struct {
		space   *space
		spec    v1alpha1.ToolCallSpec
		reason  string
		message string
	}{
		"no program":                       {strict, structured(" "), v1alpha1.ReasonEmptyCommand, "name the program"},
		"a program with a path":            {strict, structured("/bin/ls"), v1alpha1.ReasonBinaryNotBareName, `"/bin/ls"`},
		"a program above":                  {strict, structured("../ls"), v1alpha1.ReasonBinaryPathTraversal, `"../ls"`},
		"a program that isn't listed":      {strict, structured("id"), v1alpha1.ReasonBinaryNotAllowed, "ls, cat, xargs"},
		"a command that isn't written out": {strict, shell("x=id; $x"), v1alpha1.ReasonShellCommandNotAllowed, "not written out"},
		"an argument with a metacharacter": {strict, structured("ls", "-l", "$(id)"), v1alpha1.ReasonArgumentNotAllowed, "rgument 1, "},
		"a variable that is protected":     {strict, withPath, v1alpha1.ReasonEnvNotAllowed, "LD_PRELOAD"},
		"a command of a script":            {strict, shell("ls; echo $(id)"), v1alpha1.ReasonShellCommandNotAllowed, "id"},
		"a script that is none":            {strict, shell("if then fi ("), v1alpha1.ReasonShellNotParseable, ""},
		"an empty script":                  {strict, shell(" \n"), v1alpha1.ReasonEmptyCommand, ""},
		"a language that isn't listed":     {strict, code("ruby", "1"), v1alpha1.ReasonLanguageNotAllowed, "python"},
		"a module":                         {strict, code("python", "import os"), v1alpha1.ReasonModuleNotAllowed, `"os"`},
		"network by its use":               {strict, code("python", "import requests"), v1alpha1.ReasonNetworkNotAllowed, "requests"},
		"network by asking for it":         {strict, wantsNetwork, v1alpha1.ReasonNetworkNotAllowed, "networkAccess"},
		"too much time":                    {strict, within(2, code("python", "1")), v1alpha1.ReasonExecutionTimeTooLong, "1000"},
		"a source that can't be scanned":   {strict, code("python", "x = 1111111111111111111111111111111111111111111111111111111111111111"), v1alpha1.ReasonSourceTooLarge, "64"},
		"a shell where there is none":      {closed, shell("ls"), v1alpha1.ReasonShellDisabled, ""},
		"a program that a rule denies":     {ruled, structured("id"), v1alpha1.ReasonDeniedByRule, "use whoami"},
		"code where there is none":         {closed, code("python", "1"), v1alpha1.ReasonCodeDisabled, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sp := test.space
			call := sp.run(t, test.spec)
			expect(t, call, denied(test.reason))
			expectMessage(t, call, test.message)
			if call.Status.Output != call.Status.Message {
				t.Errorf("output of a denied call is its message alone: %q, not %q", call.Status.Output, call.Status.Message)
			}
			event := sp.awaitEvent(t, call, test.reason, call.Status.Message)
			if event.Type != "Warning" {
				t.Errorf("the Event is of type %s", event.Type)
			}
			if jobs := sp.jobs(t, call); len(jobs) != 0 {
				t.Errorf("a Job was made: %s", jobs[0].Name)
			}
		})
	}
}
