package programs

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
)

// Watch looks at what the processes of one call run, before its first instruction, and counts what was executed and refused.
type Watch struct {
	list     *List
	observed observed
}

// NewWatch makes a watch over what a list allows.
func NewWatch(l *List) *Watch { return &Watch{list: l} }

// Report adds what was executed and refused to an outcome.
func (w *Watch) Report(o *result.Outcome) { w.observed.report(o) }

// MayRun reports whether what a process is about to run may run, and counts it. Nobody has looked at it before: the
// script, if it is one, is looked at by the path that it was executed by. That is a look only, and so is all that holds a script
// whose interpreter may run: an interpreter reads any script that it may read.
func (w *Watch) MayRun(pid int) bool {
	thread := kernel.Thread(pid)
	f, err := w.running(pid)
	switch {
	case err != nil:
		return w.refuse(thread.Executable(), result.RuleUnreadable)
	case f == nil:
		return false
	}
	defer f.close()
	asked := thread.StartedPath()
	script, unlisted := w.scripts(thread, asked, f)
	p := w.list.find(f)
	switch {
	case p != nil && p.isLoader:
		return w.refuse(f.path, result.RuleLoader)
	case p == nil && script != "":
		return w.refuse(f.path, result.RuleInterpreter)
	case p == nil:
		return w.refuse(f.path, f.unlistedRule())
	case unlisted == "" && script != "":
		// The interpreter has the script's path there, which is no name of its own.
		return w.count(pid, f, p, "/proc/", script)
	case unlisted == "":
		return w.count(pid, f, p, asked, script)
	case unlisted == script:
		return w.refuse(script, result.RuleNotListed)
	default:
		return w.refuse(unlisted, result.RuleInterpreter)
	}
}

// scripts are those that lead from a path to the program that runs: the first one, and the first that isn't listed. Each is empty if there
// is none.
func (w *Watch) scripts(t kernel.Thread, path string, program *openFile) (first, unlisted string) {
	for range 1 + maxScripts {
		f, errno := w.list.open(t, unix.AT_FDCWD, path, 0)
		if errno != 0 {
			return first, ""
		}
		path = ""
		if f.id != program.id && f.isExecutable() {
			path = readInterpreters(f).script
		}
		isListed := w.list.find(f) != nil
		f.close()
		if path == "" { // it isn't a script
			return first, ""
		}
		if first == "" {
			first = f.path
		}
		if !isListed {
			return first, f.path
		}
	}
	return first, ""
}

// compare reports whether what was executed may run, where a verdict let it go on, and counts it.
func (w *Watch) compare(pid int, v *verdict) bool {
	f, err := w.running(pid)
	switch {
	case err != nil:
		return w.refuse(v.path, result.RuleChanged)
	case f == nil:
		return false
	}
	defer f.close()
	p := w.list.allowed(f)
	if p == nil {
		return w.refuse(f.path, result.RuleChanged)
	}
	// Its process can have executed another path than the gate has seen. What interprets a script has the script's there, which says
	// nothing of itself.
	asked := "/proc/"
	if v.script == "" {
		asked = kernel.Thread(pid).StartedPath()
	}
	return w.count(pid, f, p, asked, v.script)
}

// running identifies the program that a process runs. Without an error, nil says that the process was killed.
func (w *Watch) running(pid int) (*openFile, error) {
	fd, err := unix.Open(kernel.Thread(pid).Proc("exe"), unix.O_PATH|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return w.list.identify(fd)
}

// count counts a listed program that runs, and the script that it interprets, if any. One that is many programs may run only by a name that
// is listed.
func (w *Watch) count(pid int, f *openFile, p *program, asked, script string) (mayRun bool) {
	path := f.path
	if p.multiCall {
		name, listed := p.calledAs(asked, kernel.Thread(pid).StartedArguments(2))
		if path = filepath.Join(filepath.Dir(f.path), name); !listed {
			return w.refuse(path, result.RuleName)
		}
	}
	if script != "" {
		w.observed.addExecuted(script)
	}
	w.observed.addExecuted(path)
	return true
}

// refuse counts a program that may not run, and says so.
func (w *Watch) refuse(path, rule string) (mayRun bool) {
	w.observed.addRefused(path, rule)
	return false
}
