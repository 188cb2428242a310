package programs

import (
	"errors"

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

// MayRun reports whether what a process is about to run may run, and counts it. The script, if it is one, is looked at by the path that
// it was executed by. That is a look only, and so is all that holds a script whose interpreter may run: an interpreter reads any script
// that it may read.
func (w *Watch) MayRun(pid int) bool {
	s, isThere := w.started(pid)
	return isThere && w.count(s)
}

// started is what a process is about to run.
type started struct {
	// path is the program, or what may not run, and rule why it may not; empty if it may.
	path, rule string
	// script is what the program interprets; empty for no script.
	script string
}

// started judges what a process is about to run, by that alone. It is not there if the process was killed.
func (w *Watch) started(pid int) (s started, isThere bool) {
	thread := kernel.Thread(pid)
	f, err := w.running(pid)
	switch {
	case err != nil:
		return started{path: thread.Executable(), rule: result.RuleUnreadable}, true
	case f == nil:
		return s, false
	}
	defer f.close()
	asked := thread.StartedPath()
	script, unlisted := w.scripts(thread, asked, f)
	p := w.list.find(f)
	switch {
	case p != nil && p.isLoader:
		return started{path: f.path, rule: result.RuleLoader}, true
	case p == nil && script != "":
		return started{path: f.path, rule: result.RuleInterpreter}, true
	case p == nil:
		return started{path: f.path, rule: f.unlistedRule()}, true
	case unlisted != "" && unlisted == script:
		return started{path: script, rule: result.RuleNotListed}, true
	case unlisted != "":
		return started{path: unlisted, rule: result.RuleInterpreter}, true
	}
	s = started{path: f.path, script: script}
	if p.multiCall {
		s.path, s.rule = p.judgeName(f, namePath(asked, script), thread.StartedArguments(2))
	}
	return s, true
}

// namePath is the path that names a program which was executed by a path. What interprets a script has the script's there, which says
// nothing of itself.
func namePath(asked, script string) string {
	if script != "" {
		return "/proc/"
	}
	return asked
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

// count counts what runs or may not run, and reports which.
func (w *Watch) count(s started) (mayRun bool) {
	if s.rule != "" {
		w.observed.addRefused(s.path, s.rule)
		return false
	}
	if s.script != "" {
		w.observed.addExecuted(s.script)
	}
	w.observed.addExecuted(s.path)
	return true
}
