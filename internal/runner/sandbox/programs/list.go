// Package programs holds what a command executes: a List says which files may be, a Gate judges each execve that the kernel asks about, and
// a Watch compares what really runs, and counts what was executed and refused.
package programs

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// List is the files that a call may execute.
type List struct {
	rules *rules.Rules
	// writePaths are what the call can write to, without links, where the rules restrict that.
	writePaths []string

	files map[fileID]*program
	// dirs are the directories below which everything may be executed, each ending in "/".
	dirs []string
	// loaders start programs for the kernel. Nobody else may start them: they would run any file.
	loaders map[fileID]bool

	// anyMayWrite says that what the call can write to may run, where it is below a listed directory.
	anyMayWrite bool

	// notFound are entries of the policy that lead to nothing, writable those that the call can write to.
	notFound, writable []string
	// unheld are the listed multi-call programs whose applets nothing holds.
	unheld []string
}

// program is a listed file.
type program struct {
	path string
	interpreters
	// names are those by which it is listed.
	names map[string]bool
	// isMany says that it is many programs; calls are its names, if they are known. multiCall says that they are told apart.
	isMany, multiCall bool
	calls             []string
	version           fileVersion
}

// isListedWholly reports whether a program is listed by all its names.
func (p *program) isListedWholly() bool {
	return len(p.calls) > 0 && !slices.ContainsFunc(p.calls, func(name string) bool { return !p.names[name] })
}

// identify takes a descriptor of what is about to be executed. A listed file needn't be asked for its path.
func (l *List) identify(fd int) (*openFile, error) {
	f, err := statFile(fd)
	if err != nil {
		return nil, err
	}
	if known := l.files[f.id]; known != nil {
		f.path = known.path
	} else if f.path, err = os.Readlink(kernel.FDPath(fd)); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return f, nil
}

// find returns the listed program that a file is, or one for a file in a listed directory; nil for others. Loaders are among them: those of
// programs, those that are listed, and those in listed directories.
func (l *List) find(f *openFile) *program {
	if l.loaders[f.id] {
		return &program{path: f.path, interpreters: interpreters{isLoader: true}}
	}
	if known := l.files[f.id]; known != nil {
		return known
	}
	if l.isInDir(f) && (l.anyMayWrite || !f.isReplaceable()) {
		return &program{path: f.path, interpreters: readInterpreters(f)}
	}
	return nil
}

// isInDir reports whether a file lies below a listed directory. One in memory only looks as if it lay below "/".
func (l *List) isInDir(f *openFile) bool {
	return !f.isInMemory() && slices.ContainsFunc(l.dirs, func(dir string) bool { return strings.HasPrefix(f.path, dir) })
}

// open opens the file that an execveat of a thread would execute.
func (l *List) open(t kernel.Thread, dirfd int, path string, flags int) (*openFile, unix.Errno) {
	fd, errno := t.Open(dirfd, path, flags)
	if errno != 0 {
		return nil, errno
	}
	f, err := l.identify(fd)
	if err != nil {
		return nil, kernel.ErrnoOf(err, unix.EACCES)
	}
	return f, 0
}

// Allows reports whether a path leads to a listed program. It is a hint which of several files to start.
func (l *List) Allows(path string) bool {
	f, err := openPath(path)
	if err != nil {
		return false
	}
	defer f.close()
	p := l.find(f)
	return p != nil && !p.isLoader
}

// Report says what of the list holds.
func (l *List) Report(i *result.Isolation) {
	i.Programs = true
	i.NotFound, i.Writable, i.UnheldApplets = shortPaths(l.notFound), shortPaths(l.writable), shortPaths(l.unheld)
	var multi []string
	for _, p := range l.files {
		if p.multiCall {
			multi = append(multi, p.path)
		}
	}
	slices.Sort(multi)
	i.NamesOnly = shortPaths(multi)
}
