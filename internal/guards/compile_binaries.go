package guards

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/glob"
)

// binaryRules is the policy's list of programs.
type binaryRules struct {
	enforcement v1alpha1.Enforcement
	enforced    bool
	names       []string
	listed      map[string]bool
	// directories end in a slash; what is below one is listed.
	directories []string
	// bases are the last parts of listed paths: a bare name may lead to one of them.
	bases map[string]bool
}

// WeakNames says what binaries.enforcement Name is worth, wherever that is said.
const WeakNames = "binaries.enforcement is Name, which is weak: the names of commands that are written out are compared with the list, and nothing holds what a listed program starts: use Kernel"

// allowsAny reports whether every program may run: the list is empty and not enforced.
func (b *binaryRules) allowsAny() bool { return !b.enforced && len(b.names) == 0 }

// allows reports whether a program is listed by this name or absolute path.
func (b *binaryRules) allows(name string) bool {
	if b.allowsAny() || b.listed[name] {
		return true
	}
	return strings.HasPrefix(name, "/") && path.Clean(name) == name &&
		slices.ContainsFunc(b.directories, func(directory string) bool { return strings.HasPrefix(name, directory) })
}

// mayLeadToListed reports whether a name that isn't listed may turn out to be a listed program in the pod: a bare name
// that PATH leads to a listed path, or a relative path. An absolute path is the file that it names.
func (b *binaryRules) mayLeadToListed(name string) bool {
	if strings.Contains(name, "/") {
		return !strings.HasPrefix(name, "/")
	}
	return b.bases[name] || len(b.directories) > 0
}

func (p *Policy) compileBinaries(c *compiler) {
	p.binaries = binaryRules{enforcement: v1alpha1.EnforcementKernel, listed: map[string]bool{}, bases: map[string]bool{}}
	rules := cmp.Or(c.spec.Binaries, &v1alpha1.BinariesPolicy{})
	mode := oneOf(c, "spec.binaries.mode", rules.Mode, v1alpha1.BinariesPermissive, v1alpha1.BinariesEnforced)
	p.binaries.enforcement = oneOf(c, "spec.binaries.enforcement", rules.Enforcement, v1alpha1.EnforcementKernel, v1alpha1.EnforcementName)
	multiCall := oneOf(c, "spec.binaries.multiCall", rules.MultiCall, v1alpha1.MultiCallDeny, v1alpha1.MultiCallAllow)
	for i, name := range rules.Allowed {
		if why := listedProblem(name); why != "" {
			c.fail("spec.binaries.allowed[%d]: %s %s: use the bare name of a program, like \"grep\", its absolute path, or a directory that ends in \"/\"", i, quote(name), why)
		}
		p.binaries.add(name)
	}
	p.binaries.enforced = mode == v1alpha1.BinariesEnforced
	p.binaries.names = slices.Clone(rules.Allowed)
	warn := func(applies bool, text string) {
		if applies {
			p.warnings = append(p.warnings, text)
		}
	}
	held := p.HoldsPrograms() && p.binaries.enforcement == v1alpha1.EnforcementKernel
	warn(p.allowlisted && p.binaries.allowsAny(), "shell.commands is Allowlisted, and the list is empty and Permissive, so that any program may run: list programs, or set binaries.mode to Enforced")
	warn(len(rules.Allowed) > 0 && !p.HoldsPrograms(), "binaries.mode is Permissive, and only the program that a Structured call names is compared with the list: set it to Enforced")
	warn(p.HoldsPrograms() && !held, WeakNames)
	warn(held && multiCall == v1alpha1.MultiCallAllow, "binaries.multiCall is Allow, and nothing holds what a listed multi-call program runs without executing it: use Deny, or list none that does so")
	warn(held && isTrue(rules.AllowWritable), "binaries.allowWritable is true, and whatever a call puts where an entry of the list leads may then run: list only what calls can't write to, or set it to false")
	p.binaries.checkHelpers(c, rules.Helpers)
}

func (b *binaryRules) add(name string) {
	switch {
	case strings.HasSuffix(name, "/"):
		b.directories = append(b.directories, name)
		return
	case strings.HasPrefix(name, "/"):
		b.bases[path.Base(name)] = true
	}
	b.listed[name] = true
}

// listedProblem says what is wrong with an entry of the list that can't match a program.
func listedProblem(name string) string {
	switch {
	case name == "":
		return "is empty"
	case strings.ContainsFunc(name, isSpaceOrControl) || !utf8.ValidString(name):
		return "contains white space or control characters"
	case strings.Contains(name, ".."):
		return "contains \"..\", which is always refused in calls"
	case strings.HasPrefix(name, "/"):
		if path.Clean(name) != strings.TrimSuffix(name, "/") {
			return "is not a plain path below /"
		}
	case strings.Contains(name, "/"):
		return "is a relative path"
	}
	return ""
}

func (b *binaryRules) checkHelpers(c *compiler, helpers map[string]v1alpha1.HelperList) {
	for _, program := range slices.Sorted(maps.Keys(helpers)) {
		field := "spec.binaries.helpers[" + program + "]"
		if !b.allows(program) || strings.HasSuffix(program, "/") {
			c.fail("%s: the program is not listed in binaries.allowed: list it, or remove its helpers", field)
		}
		for i, helper := range helpers[program] {
			if why := helperProblem(helper); why != "" {
				c.fail("%s[%d]: %s %s: use a bare name, an absolute path, or an absolute path with *, ? and []", field, i, quote(helper), why)
			}
		}
	}
}

func helperProblem(helper string) string {
	if why := listedProblem(helper); why != "" {
		return why
	}
	if _, err := path.Match(helper, ""); err != nil {
		return "is not a valid pattern"
	}
	if !strings.HasPrefix(helper, "/") && strings.ContainsAny(helper, "*?[") {
		return "has wildcards and is no path"
	}
	return ""
}

func (f *fileRules) compile(c *compiler) {
	files := c.spec.Files
	if files == nil {
		return
	}
	for _, list := range []struct {
		field string
		paths []string
	}{{"spec.files.readPaths", files.ReadPaths}, {"spec.files.writePaths", files.WritePaths}} {
		for i, name := range list.paths {
			if !strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0) || path.Clean(name) != strings.TrimSuffix(name, "/") && name != "/" {
				c.fail("%s[%d]: %s is not a plain absolute path: use one like \"/workspace\", without \"..\"", list.field, i, quote(name))
			}
		}
	}
	denied, err := glob.Denied(files.DeniedPaths)
	if err != nil {
		c.fail("spec.files.deniedPaths: %w: use globs like \".git\" or \"/workspace/secrets/**\"", err)
	}
	f.writePaths, f.denied = slices.Clone(files.WritePaths), denied
	between(c, "spec.files.maxReadBytes", files.MaxReadBytes, span[int64]{0, 1, limitFileBytes})
	between(c, "spec.files.maxWriteBytes", files.MaxWriteBytes, span[int64]{0, 1, limitFileBytes})
}
