package guards

import (
	"encoding/json"
	"os"
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

// judge checks an attempt.
func (a attempt) judge(t testing.TB) *Denial {
	t.Helper()
	spec := a.Policy.DeepCopy()
	spec.Access = v1alpha1.AccessOpen
	if spec.Arguments == nil {
		spec.Arguments = &v1alpha1.ArgumentsPolicy{Metacharacters: v1alpha1.MetacharactersAllow}
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

// unseen are uses of a module that only who decodes, joins or evaluates the source finds: the scan is a signal.
var unseen = map[string]bool{
	"new code: comment between parts of a literal": true, "new code: comment between parts, eval": true, "new code: character name long s": true,
	"new code: import() of a variable": true, "new code: fetch through comma": true,
}

// Under Kernel the guards refuse names that are written out; the kernel refuses the rest. Sources are searched as ever.
func TestAttemptsUnderKernelAreRefusedByNameOnly(t *testing.T) {
	t.Parallel()
	for _, a := range readAttempts(t) {
		denial := a.judge(t)
		switch {
		case a.Spec.Code != nil && (denial == nil) != unseen[a.Name], a.Reason == nil && denial != nil:
			t.Errorf("%s: %+v", a.Name, denial)
		case a.Spec.Structured != nil && denial != nil && denial.Reason != v1alpha1.ReasonEnvNotAllowed:
			t.Errorf("%s: a listed program is refused: %+v", a.Name, denial)
		case a.Spec.Shell != nil && denial != nil && !strings.Contains(denial.Message, "is not listed") && denial.Reason != v1alpha1.ReasonEnvNotAllowed:
			t.Errorf("%s: %s", a.Name, denial.Message)
		}
	}
}

type ordinaryVectors struct{ Allowed, Commands []string }

func ordinaryPolicy(t testing.TB, mode v1alpha1.BinariesMode) (*Policy, []string) {
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
		Binaries: &v1alpha1.BinariesPolicy{Mode: mode, Allowed: file.Allowed},
	})
	if err != nil {
		t.Fatal(err)
	}
	return policy, file.Commands
}

func TestOrdinaryCommandsPassUnderKernel(t *testing.T) {
	t.Parallel()
	for _, mode := range []v1alpha1.BinariesMode{v1alpha1.BinariesEnforced, v1alpha1.BinariesPermissive} {
		policy, commands := ordinaryPolicy(t, mode)
		for _, command := range commands {
			if denial := checkScript(policy, command); denial != nil {
				t.Errorf("%q: %s", command, denial.Message)
			}
		}
	}
}
