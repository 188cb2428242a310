package guards

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/spec"
)

// Policy is a compiled ExecutionPolicySpec, with the built-in defaults applied. It never changes and is safe for
// concurrent use.
type Policy struct {
	access       v1alpha1.AccessMode
	shellEnabled bool
	allowlisted  bool
	binaries     binaryRules
	denyMeta     bool
	envBlocklist []string
	protectedEnv []string
	timeout      time.Duration
	maxTimeout   time.Duration
	code         codeRules
	bounds       spec.Bounds
	artifacts    spec.Collect
	files        fileRules
	warnings     []string
}

// Enforcement is what holds the list of programs: the kernel of the node, or only a comparison of names.
func (p *Policy) Enforcement() v1alpha1.Enforcement { return p.binaries.enforcement }

// HoldsPrograms reports whether calls may run listed programs only.
func (p *Policy) HoldsPrograms() bool {
	return (p.binaries.enforced || p.allowlisted) && !p.binaries.allowsAny()
}

// Warnings say what of the policy is usable but weaker than it looks, or opens nothing. They are the same for the same policy.
func (p *Policy) Warnings() []string { return slices.Clone(p.warnings) }

// codeRules are the rules for code calls.
type codeRules struct {
	enabled   bool
	languages []string
	modules   *moduleScanner
	network   bool
	// noNetwork says which field keeps code from it.
	noNetwork  string
	maxTime    time.Duration
	maxScan    int
	scanPrefix bool
}

// fileRules are the rules for the paths of files.
type fileRules struct {
	writePaths []string
	denied     *regexp.Regexp
}

// EnvBlocklist returns the prefixes of variables that are removed from an untrusted call.
func (p *Policy) EnvBlocklist() []string { return slices.Clone(p.envBlocklist) }

// Timeout is the limit that a call gets: what it wants, else the policy's default, held between one second and the
// policy's maximum. A code call gets no more than MaxTime, also when it asks for no time.
func (p *Policy) Timeout(action *Action) time.Duration {
	limit := p.timeout
	if action.WantedTime != nil {
		limit = *action.WantedTime
	}
	limit = max(time.Second, min(limit, p.maxTimeout))
	if most := p.MaxTime(action); most > 0 {
		limit = min(limit, most)
	}
	return limit
}

// MaxTime is code.maxExecutionMilliseconds for a code call, which holds in the background too; 0 for no such bound.
func (p *Policy) MaxTime(action *Action) time.Duration {
	if action.Type != v1alpha1.ActionCode {
		return 0
	}
	return p.code.maxTime
}

// Bounds are the limits that don't depend on the call.
func (p *Policy) Bounds() spec.Bounds { return p.bounds }

// Access is how the right to use a tool is decided.
func (p *Policy) Access() v1alpha1.AccessMode { return p.access }

// matchesName reports whether a variable's name is among patterns: exact names, and prefixes that are written with a "*" at the end.
func matchesName(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		return name == pattern || isPrefix && strings.HasPrefix(name, prefix)
	})
}
