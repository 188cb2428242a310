package guards

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

// attempt is a case of testdata/bypass.json: an input that once ran an unlisted program or used a denied module.
type attempt struct {
	Name   string                       `json:"name"`
	Spec   v1alpha1.ToolCallSpec        `json:"spec"`
	Policy v1alpha1.ExecutionPolicySpec `json:"policy"`
	Reason *string                      `json:"reason"`
	Alt    []string                     `json:"alt"`
}

func readJSON(t testing.TB, name string, into any) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

func readAttempts(t testing.TB) []attempt {
	t.Helper()
	var file struct{ Cases []attempt }
	readJSON(t, "bypass.json", &file)
	if len(file.Cases) < 59 {
		t.Fatalf("only %d cases", len(file.Cases))
	}
	return file.Cases
}

// judge checks an attempt under one enforcement.
func (a attempt) judge(t testing.TB, enforcement v1alpha1.Enforcement) *Denial {
	t.Helper()
	spec := a.Policy.DeepCopy()
	spec.Access = v1alpha1.AccessOpen
	if spec.Arguments == nil {
		spec.Arguments = &v1alpha1.ArgumentsPolicy{Metacharacters: v1alpha1.MetacharactersAllow}
	}
	if spec.Binaries != nil {
		spec.Binaries.Enforcement = enforcement
	}
	policy, err := Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	action, denial := Map(&a.Spec)
	if denial != nil {
		return denial
	}
	return policy.Check(Input{Action: action, Env: a.Spec.Env})
}

func TestNothingThatOnceGotThroughDoesUnderText(t *testing.T) {
	t.Parallel()
	for _, a := range readAttempts(t) {
		denial := a.judge(t, v1alpha1.EnforcementText)
		switch {
		case a.Reason == nil && denial != nil:
			t.Errorf("%s: refused: %s: %s", a.Name, denial.Reason, denial.Message)
		case a.Reason != nil && denial == nil:
			t.Errorf("%s: allowed", a.Name)
		case a.Reason != nil && denial.Reason != *a.Reason && !slices.Contains(a.Alt, denial.Reason):
			t.Errorf("%s: want %s, got %s: %s", a.Name, *a.Reason, denial.Reason, denial.Message)
		}
	}
}

// Under Kernel the guards refuse names that are written out; the kernel refuses the rest. Sources are searched as ever.
func TestAttemptsUnderKernelAreRefusedByNameOnly(t *testing.T) {
	t.Parallel()
	for _, a := range readAttempts(t) {
		denial := a.judge(t, v1alpha1.EnforcementKernel)
		switch {
		case a.Spec.Code != nil && denial == nil, a.Reason == nil && denial != nil:
			t.Errorf("%s: %+v", a.Name, denial)
		case a.Spec.Structured != nil && denial != nil && denial.Reason != v1alpha1.ReasonEnvNotAllowed:
			t.Errorf("%s: a listed program is refused: %+v", a.Name, denial)
		case a.Spec.Shell != nil && denial != nil && !strings.Contains(denial.Message, "is not listed") && denial.Reason != v1alpha1.ReasonEnvNotAllowed:
			t.Errorf("%s: %s", a.Name, denial.Message)
		}
	}
}

type ordinaryVectors struct{ Allowed, Commands []string }

func ordinaryPolicy(t testing.TB, enforcement v1alpha1.Enforcement, mode v1alpha1.BinariesMode) (*Policy, []string) {
	t.Helper()
	var file ordinaryVectors
	readJSON(t, "ordinary.json", &file)
	if len(file.Commands) < 163 {
		t.Fatalf("only %d commands", len(file.Commands))
	}
	enabled := true
	policy, err := Compile(&v1alpha1.ExecutionPolicySpec{
		Access:   v1alpha1.AccessOpen,
		Shell:    &v1alpha1.ShellPolicy{Enabled: &enabled, Commands: v1alpha1.ShellAllowlisted},
		Binaries: &v1alpha1.BinariesPolicy{Mode: mode, Enforcement: enforcement, Allowed: file.Allowed},
	})
	if err != nil {
		t.Fatal(err)
	}
	return policy, file.Commands
}

func TestOrdinaryCommandsPassUnderKernel(t *testing.T) {
	t.Parallel()
	for _, mode := range []v1alpha1.BinariesMode{v1alpha1.BinariesEnforced, v1alpha1.BinariesPermissive} {
		policy, commands := ordinaryPolicy(t, v1alpha1.EnforcementKernel, mode)
		for _, command := range commands {
			verdict, denial := policy.Judge(Input{Action: &Action{Type: v1alpha1.ActionShell, Command: command}})
			if denial != nil || verdict.Command != command {
				t.Errorf("%q: %+v, runs %q", command, denial, verdict.Command)
			}
		}
	}
}

func TestAtMostATenthOfOrdinaryCommandsIsRefusedUnderText(t *testing.T) {
	t.Parallel()
	policy, commands := ordinaryPolicy(t, v1alpha1.EnforcementText, v1alpha1.BinariesEnforced)
	refused := 0
	for _, command := range commands {
		denial := checkScript(policy, command)
		if denial == nil {
			continue
		}
		refused++
		t.Logf("%q: %s", command, denial.Message)
		if _, fix, ok := strings.Cut(denial.Message, "(shell.commands is Allowlisted): "); !ok || len(fix) < 10 {
			t.Errorf("%q: the message doesn't say how to write it: %s", command, denial.Message)
		}
	}
	if refused*10 > len(commands) {
		t.Errorf("%d of %d are refused", refused, len(commands))
	}
}
