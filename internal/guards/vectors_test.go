package guards

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

type vector struct {
	Name   string                       `json:"name"`
	Policy v1alpha1.ExecutionPolicySpec `json:"policy"`
	Caller struct {
		Username string   `json:"username"`
		MayUse   []string `json:"mayUse"`
	} `json:"caller"`
	Spec v1alpha1.ToolCallSpec `json:"spec"`
	Want struct {
		Verdict         string   `json:"verdict"`
		Reason          string   `json:"reason"`
		MessageContains []string `json:"messageContains"`
	} `json:"want"`
}

func readVectors(t *testing.T) []vector {
	t.Helper()
	data, err := os.ReadFile("testdata/guards.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []vector `json:"cases"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Cases
}

// checkVector answers what the pipeline as a whole says to one case.
func checkVector(t *testing.T, v vector) *Denial {
	t.Helper()
	policy, err := Compile(&v.Policy)
	if err != nil {
		t.Fatalf("the policy doesn't compile: %v", err)
	}
	action, denial := Map(&v.Spec)
	if denial != nil {
		return denial
	}
	return policy.Check(Input{
		Action:    action,
		Env:       v.Spec.Env,
		Requester: &v1alpha1.Requester{Username: v.Caller.Username},
		MayUse: func(tool string) (bool, error) {
			return slices.Contains(v.Caller.MayUse, "*") || slices.Contains(v.Caller.MayUse, tool), nil
		},
	})
}

// atRunTime are the cases whose program isn't written out where a command stands.
var atRunTime = map[string]string{
	"dynamic name":      notWritten,
	"eval of a literal": launched, "xargs runs its argument": launched, "env runs its argument": launched, "find -exec": launched,
}

const (
	// notWritten is refused under Name, launched is held by the kernel alone.
	notWritten, launched = "not written", "launched"
)

func TestVectors(t *testing.T) {
	t.Parallel()
	vectors := readVectors(t)
	if len(vectors) < 125 {
		t.Fatalf("only %d vectors", len(vectors))
	}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			denial := checkVector(t, v)
			if why, is := atRunTime[v.Name]; is {
				// The kernel holds it, which the tests of the runner and of test/e2e show.
				if denial != nil {
					t.Fatalf("refused, though only the kernel can tell: %s", denial.Message)
				}
				v.Policy.Binaries.Enforcement = v1alpha1.EnforcementName
				if denial = checkVector(t, v); why == launched {
					if denial != nil {
						t.Fatalf("Name looks at more than names: %s", denial.Message)
					}
					return
				}
			}
			if v.Want.Verdict == "Allow" {
				if denial != nil {
					t.Fatalf("want allow, got %s: %s", denial.Reason, denial.Message)
				}
				return
			}
			if denial == nil || denial.Reason != v.Want.Reason {
				t.Fatalf("want %s, got %+v", v.Want.Reason, denial)
			}
			for _, text := range v.Want.MessageContains {
				if !strings.Contains(denial.Message, text) {
					t.Errorf("message %q lacks %q", denial.Message, text)
				}
			}
		})
	}
}
