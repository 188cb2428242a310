package sandbox

import (
	"fmt"
	"path/filepath"
	"slices"

	"toolcall.dev/operator/internal/result"
)

// isRefusedAsWritable reports whether it isn't enough to list a program, because the call can write to it.
func (d *Domain) isRefusedAsWritable(p result.Program) bool {
	isUnlisted := slices.Contains([]string{result.RuleNotListed, result.RuleInterpreter}, p.Rule)
	if !isUnlisted || d.rules.Programs == nil || d.rules.Programs.AllowWritable || !filepath.IsAbs(p.Path) {
		return false
	}
	calls := newResolver(d.rules)
	f, err := openPath(p.Path)
	if err != nil { // it is gone, or its path was too long
		return calls.isWritablePath(filepath.Dir(p.Path))
	}
	defer f.close()
	return calls.isWritable(f)
}

// writableRefusal is Refusal for such a program.
func writableRefusal(p result.Program, policy string) string {
	name := fmt.Sprintf("%q", p.Path)
	if p.Rule == result.RuleInterpreter {
		name += ", the interpreter of a script,"
	}
	return fmt.Sprintf("%s was not allowed to run: the call can write to it. Put it where calls can't write, "+
		"or add its path to binaries.allowed of policy %q and set binaries.allowWritable.", name, policy)
}
