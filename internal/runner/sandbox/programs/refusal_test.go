package programs

import (
	"testing"

	"toolcall.dev/operator/internal/result"
)

func TestEachRefusalSaysWhatToDo(t *testing.T) {
	for rule, want := range map[string]string{
		result.RuleNotListed:      `"/usr/bin/curl" was not allowed to run: add it to binaries.allowed of policy "agents".`,
		result.RuleName:           `"/usr/bin/curl" was not allowed to run: add it to binaries.allowed of policy "agents".`,
		result.RuleInterpreter:    `"/usr/bin/curl", the interpreter of a script, was not allowed to run: add it to binaries.allowed of policy "agents".`,
		result.RuleLoader:         `"/usr/bin/curl" was not allowed to run: a loader runs any file, so it can't be started by hand.`,
		result.RuleUnnamed:        `"/usr/bin/curl" was not allowed to run: a program must be a file with a name.`,
		result.RuleChanged:        `"/usr/bin/curl" was not allowed to run: its process executed something else than it had asked for, and was killed.`,
		result.RuleUnreadable:     `"/usr/bin/curl" was not allowed to run a program: its process can't be looked at.`,
		result.RuleUnreadableFile: `"/usr/bin/curl" was not allowed to run: the call's user can't read it, so its process can't be looked at. Make it readable.`,
	} {
		if got := refusalOf(result.Program{Path: "/usr/bin/curl", Rule: rule}, "agents", false); got != want {
			t.Errorf("%s: got %s", rule, got)
		}
	}
}
