package sandbox

import (
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
)

// tracer holds the programs of a call where the kernel can't ask: it traces every process and thread of the call, from before
// its first execve on, and looks at each program before its first instruction. It refuses nothing: it kills what may not run.
//
// The filter keeps processes from leaving the trace. The kernel kills them all when the tracer ends. Nobody else of this process may wait
// for children meanwhile: gVisor would hand the stops to whoever asks first.
type tracer struct {
	watch
	leader int
	wake   func()
	// stopped says that nothing may be executed any more.
	stopped atomic.Bool
	// first is closed at the first execve, or when everything has ended. ran says that the program of it may run.
	first chan struct{}
	ran   bool
	// status is the leader's end, over is closed when no child is left.
	status atomic.Pointer[unix.WaitStatus]
	over   chan struct{}
}

// newTracer traces a process that waits for its command. It takes a worker.
func newTracer(pid int, p *programs, wake func(), w workers) (*tracer, error) {
	t := &tracer{watch: watch{programs: p}, leader: pid, wake: wake, first: make(chan struct{}), over: make(chan struct{})}
	seized := make(chan error)
	w <- func() {
		err := seize(pid, followAll)
		if err == nil {
			err = settle(pid)
		}
		seized <- err
		if err == nil {
			t.work()
		}
	}
	return t, <-seized
}

// settle waits until a traced stage has made its own execve, which may end after the runner knows that the stage runs. Each later execve is
// the command's.
func settle(pid int) error {
	for {
		// Another stop, such as that for a new thread, cancels this request (ptrace(2), PTRACE_INTERRUPT): it is made again.
		if err := unix.PtraceInterrupt(pid); err != nil {
			return err
		}
		status, err := awaitStop(pid)
		if err != nil {
			return err
		}
		var signal unix.Signal
		event := int(status) >> eventShift
		if event == 0 {
			signal = status.StopSignal()
		}
		proceedTraced(pid, unix.PTRACE_CONT, signal)
		if event == unix.PTRACE_EVENT_STOP {
			return nil
		}
	}
}

// awaitStop waits until a traced process stops.
func awaitStop(pid int) (status unix.WaitStatus, err error) {
	for {
		if _, err = unix.Wait4(pid, &status, unix.WALL, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil && !status.Stopped() {
		err = unix.ESRCH
	}
	return status, err
}

// work handles what is traced until all of it has ended, and reaps it.
func (t *tracer) work() {
	defer t.wake()
	defer close(t.over)
	defer t.learn(false)
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return
		case status.Stopped():
			t.handle(pid, int(status)>>eventShift, status.StopSignal())
		default:
			if pid == t.leader {
				t.status.CompareAndSwap(nil, &status) // another process may have its ID later
			}
			t.wake()
		}
	}
}

// handle lets a stopped thread go on, or kills it. Without an event it is about to get a signal.
func (t *tracer) handle(pid, event int, signal unix.Signal) {
	switch event {
	case 0:
		proceedTraced(pid, unix.PTRACE_CONT, signal)
	case unix.PTRACE_EVENT_EXEC:
		mayRun := !t.stopped.Load() && t.compareTraced(pid)
		if t.learn(mayRun); mayRun {
			proceedTraced(pid, unix.PTRACE_CONT, 0)
			return
		}
		_ = unix.Kill(pid, unix.SIGKILL)
	case unix.PTRACE_EVENT_STOP:
		if signal == unix.SIGSTOP || signal == unix.SIGTSTP || signal == unix.SIGTTIN || signal == unix.SIGTTOU {
			proceedTraced(pid, unix.PTRACE_LISTEN, 0) // it stays stopped, as job control wants
			return
		}
		proceedTraced(pid, unix.PTRACE_CONT, 0)
	default:
		proceedTraced(pid, unix.PTRACE_CONT, 0)
	}
}

// proceedTraced lets a thread go on. One that was killed meanwhile needs no leave.
func proceedTraced(pid int, request uintptr, signal unix.Signal) {
	_, _, _ = unix.Syscall6(unix.SYS_PTRACE, request, uintptr(pid), 0, uintptr(signal), 0, 0)
}

// learn says what became of the first execve, once.
func (t *tracer) learn(ran bool) {
	select {
	case <-t.first:
	default:
		t.ran = ran
		close(t.first)
	}
}

// compareTraced reports whether what a process is about to run may run, and counts it. Nobody has looked at it before: the
// script, if it is one, is looked at by the path that it was executed by. That is a look only, and so is all that holds a script
// whose interpreter may run: an interpreter reads any script that it may read.
func (t *tracer) compareTraced(pid int) bool {
	f, err := t.running(pid)
	switch {
	case err != nil:
		return t.refuse(target(pid).executable(), result.RuleUnreadable)
	case f == nil:
		return false
	}
	defer f.close()
	asked := startedPath(pid)
	script := t.script(pid, asked, f)
	if script != nil {
		defer script.close()
	}
	p := t.programs.find(f)
	switch {
	case p != nil && p.isLoader:
		return t.refuse(f.path, result.RuleLoader)
	case p == nil && script != nil:
		return t.refuse(f.path, result.RuleInterpreter)
	case p == nil && (!f.isNamed || !filepath.IsAbs(f.path) || strings.HasPrefix(f.path, "/memfd:")):
		return t.refuse(f.path, result.RuleUnnamed)
	case p == nil:
		return t.refuse(f.path, result.RuleNotListed)
	case script != nil && t.programs.find(script) == nil:
		return t.refuse(script.path, result.RuleNotListed)
	case script != nil:
		if unlisted := t.unlistedInterpreter(pid, script, f); unlisted != "" {
			return t.refuse(unlisted, result.RuleInterpreter)
		}
	}
	path := f.path
	if p.multiCall {
		name, listed := p.calledAs(asked, startedArguments(pid, 2))
		if path = filepath.Join(filepath.Dir(f.path), name); !listed {
			return t.refuse(path, result.RuleName)
		}
	}
	if script != nil {
		t.observed.addExecuted(script.path)
	}
	t.observed.addExecuted(path)
	return true
}

// unlistedInterpreter is a script that isn't listed among those that lead from a script to the program that runs; empty if there
// is none.
func (t *tracer) unlistedInterpreter(pid int, script, program *openFile) string {
	next := readInterpreters(script).script
	for range maxScripts {
		f := t.script(pid, next, program)
		if f == nil {
			return ""
		}
		isListed := t.programs.find(f) != nil
		next = readInterpreters(f).script
		f.close()
		if !isListed {
			return f.path
		}
	}
	return ""
}

// script is what a path leads to if that is a script, and not the program that runs; nil otherwise.
func (t *tracer) script(pid int, path string, program *openFile) *openFile {
	if path == "" {
		return nil
	}
	f, errno := target(pid).open(t.programs, unix.AT_FDCWD, path, 0)
	if errno != 0 {
		return nil
	}
	if f.id != program.id && f.isExecutable() && readInterpreters(f).script != "" {
		return f
	}
	f.close()
	return nil
}
