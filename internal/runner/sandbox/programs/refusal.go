package programs

import (
	"fmt"
	"path/filepath"
	"slices"

	"toolcall.dev/operator/internal/result"
)

// Refusal is a sentence about the last program that was refused, and one about others; empty if there was none.
func (w *Watch) Refusal() string {
	last, others := w.observed.lastRefused()
	if last.Path == "" {
		return ""
	}
	return refusalOf(last, w.list.rules.Policy, w.list.isRefusedAsWritable(last)) + others
}

// refusalOf says which program a policy doesn't let run, and how to change that. It isn't enough to list one that the
// call can write to.
func refusalOf(p result.Program, policy string, writable bool) string {
	name := fmt.Sprintf("%q", p.Path)
	switch p.Rule {
	case result.RuleLoader:
		return name + " was not allowed to run: a loader runs any file, so it can't be started by hand."
	case result.RuleUnnamed:
		return name + " was not allowed to run: a program must be a file with a name."
	case result.RuleChanged:
		return name + " was not allowed to run: its process executed something else than it had asked for, and was killed."
	case result.RuleUnreadable:
		return name + " was not allowed to run a program: its process can't be looked at."
	case result.RuleUnreadableFile:
		return name + " was not allowed to run: the call's user can't read it, so its process can't be looked at. Make it readable."
	case result.RuleInterpreter:
		name += ", the interpreter of a script,"
	}
	if writable {
		return fmt.Sprintf("%s was not allowed to run: the call can write to it. Put it where calls can't write, "+
			"or add its path to binaries.allowed of policy %q and set binaries.allowWritable.", name, policy)
	}
	return fmt.Sprintf("%s was not allowed to run: add it to binaries.allowed of policy %q.", name, policy)
}

// isRefusedAsWritable reports whether it isn't enough to list a program, because the call can write to it.
func (l *List) isRefusedAsWritable(p result.Program) bool {
	isUnlisted := slices.Contains([]string{result.RuleNotListed, result.RuleInterpreter}, p.Rule)
	if !isUnlisted || l.rules.Programs.AllowWritable || !filepath.IsAbs(p.Path) {
		return false
	}
	f, err := openPath(p.Path)
	if err != nil { // it is gone, or its path was too long
		return l.isWritablePath(filepath.Dir(p.Path))
	}
	defer f.close()
	return l.isWritable(f)
}
