package programs

import (
	"path/filepath"
	"slices"
	"strings"

	"toolcall.dev/operator/internal/result"
)

// multiCallNames begin the names of files that are many programs.
var multiCallNames = []string{"busybox", "toybox", "coreutils", "uutils", "uu-"}

func isMultiCallName(base string) bool {
	return slices.ContainsFunc(multiCallNames, func(name string) bool { return strings.HasPrefix(base, name) })
}

// isMultiCall reports whether a program is one of those, or has other names in its directory, and which. Names that
// differ by a version are of one program: perl and perl5.36.0.
func isMultiCall(f *openFile) (multi bool, names []string) {
	own := filepath.Base(f.path)
	if isMultiCallName(own) {
		return true, nil
	}
	if !f.isLinked {
		return false, nil
	}
	names = linksIn(filepath.Dir(f.path))[f.id]
	isOther := func(name string) bool { return unversioned(name) != unversioned(own) }
	return slices.ContainsFunc(names, isOther), names
}

// byArgumentAlone are those of them that don't look at the path that they were executed by.
var byArgumentAlone = []string{"busybox", "toybox"}

func (p *program) isByArgumentAlone() bool {
	own := filepath.Base(p.path)
	return slices.ContainsFunc(byArgumentAlone, func(prefix string) bool { return strings.HasPrefix(own, prefix) })
}

// loginShells are names that may follow a dash, which login shells have.
var loginShells = []string{"sh", "ash", "bash", "hush"}

// judgeName returns the path of the name by which a multi-call program is called, and why it may not run by that; empty if it may.
func (p *program) judgeName(f *openFile, path string, args []string) (named, rule string) {
	name, listed := p.calledAs(path, args)
	if !listed {
		rule = result.RuleName
	}
	return filepath.Join(filepath.Dir(f.path), name), rule
}

// calledAs returns what a multi-call program is told to be by the path that was executed and its first arguments, and
// whether it is listed by that name. Programs differ in what they look at, and take any name that they don't know for
// their own: each must be a name that is listed for this file.
func (p *program) calledAs(path string, args []string) (name string, listed bool) {
	called := ""
	if len(args) > 0 {
		called = lastPart(args[0])
		if called == "" && args[0] != "" {
			// For busybox "rm/" is no name, and for uutils it is rm.
			return args[0], false
		}
	}
	if shell := strings.TrimPrefix(called, "-"); slices.Contains(loginShells, shell) {
		called = shell
	}
	name, listed = p.named(called, args)
	// Through /proc there is no name: busybox's shell executes itself so, and uutils then looks at the argument.
	if !listed || p.isByArgumentAlone() || strings.HasPrefix(path, "/proc/") {
		return name, listed
	}
	if byPath, isListed := p.named(lastPart(path), args); !isListed {
		return byPath, false
	}
	return name, true
}

// named returns what a name means to the program, with its arguments: its own name, or that of such programs, or none
// (a descriptor was executed) makes the first argument the name.
func (p *program) named(name string, args []string) (meant string, listed bool) {
	own := filepath.Base(p.path)
	isOwn := isMultiCallName(own) && (name == own || strings.HasPrefix(own, name+"."))
	if !isOwn && name != "" && !(p.names[name] && isMultiCallName(name)) {
		return name, p.names[name]
	}
	if len(args) < 2 {
		return own, p.names[own]
	}
	inner := lastPart(strings.TrimPrefix(args[1], "--coreutils-prog="))
	if isMultiCallName(inner) {
		// It looks for a name further on.
		return own + " " + inner, false
	}
	return inner, p.names[inner]
}

// lastPart is what follows the last slash.
func lastPart(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
