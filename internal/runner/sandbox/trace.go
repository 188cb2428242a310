package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
)

// childTrapped is the first code of a child that has stopped and not ended.
const childTrapped = 4

// eventShift is where a stop's status holds the event that caused it.
const eventShift = 16

// State is what a process waits to be asked for.
type State int

// States of a child.
const (
	// Ended says that the child can be reaped.
	Ended State = iota + 1
	// Traced says that the gate holds the child for a moment. Waiting for it would take that from the gate.
	Traced
)

// Peek reports whether a child has changed its state, and which, without taking it away: 0 for none. pid is -1 for any
// child. The error is ECHILD when there is none.
func Peek(pid int) (int, State, error) {
	return peek(pid, unix.WNOHANG)
}

func peek(pid, options int) (int, State, error) {
	kind := unix.P_PID
	if pid < 0 {
		kind, pid = unix.P_ALL, 0
	}
	var info unix.Siginfo
	err := unix.Waitid(kind, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WALL|options, nil)
	if err != nil || info.Signo == 0 {
		return 0, 0, err
	}
	state := Ended
	if info.Code >= childTrapped {
		state = Traced
	}
	// The process ID is the first field of the union that follows the codes.
	raw := (*[unsafe.Sizeof(info)]byte)(unsafe.Pointer(&info))
	return int(int32(binary.LittleEndian.Uint32(raw[16:]))), state, nil
}

// follow lets an execution go on and looks at what really runs before its first instruction. The calling thread traces
// nothing else.
func (g *gate) follow(n *notification, v verdict) {
	tid := int(n.pid)
	err := seize(tid, followExec)
	for tries := 0; errors.Is(err, unix.EPERM) && g.listener.isValid(n.id) && (tries < seizeTries || target(tid).isTracedHere()); tries++ {
		// Another worker is about to let it go, since an execution that failed is followed by the next at once; or it was
		// killed.
		pause()
		err = seize(tid, followExec)
	}
	if err != nil {
		if !errors.Is(err, unix.ESRCH) && g.listener.isValid(n.id) {
			g.observed.addRefused(v.path, result.RuleUnreadable)
			g.listener.refuse(n.id, unix.EACCES)
		}
		return
	}
	defer g.wake()
	trace := trace{gate: g, tid: tid, siblings: target(tid).hasSiblings()}
	// The interrupt ends the trace also when the execution fails.
	if g.listener.proceed(n.id) {
		trace.expected = &v
	}
	_ = unix.PtraceInterrupt(tid)
	trace.finish()
}

// trace is that of one thread, up to the end of its execution.
type trace struct {
	*gate
	tid int
	// siblings says that its process has other threads.
	siblings bool
	// expected is what it may execute, nil for nothing.
	expected *verdict
}

// hasSiblings reports whether a thread's process has other threads. Each is a link of its directory of threads.
func (t target) hasSiblings() bool {
	var st unix.Stat_t
	return unix.Stat(t.proc("task"), &st) != nil || st.Nlink > 3
}

// What a trace follows: one execve, or also what the thread starts. That also stops threads at their end: when another thread's program
// takes the first one's place, no leave that was meant for the first reaches it.
const (
	followExec = unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL
	followAll  = followExec | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXIT
)

// seize traces a thread without stopping it. It dies with this process.
func seize(tid int, follow uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tid), 0, follow, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// isTracedHere reports whether a thread of this process traces the target.
func (t target) isTracedHere() bool {
	status, err := os.ReadFile(t.proc("status"))
	if err != nil {
		return false
	}
	_, after, _ := bytes.Cut(status, []byte("\nTracerPid:"))
	line, _, _ := bytes.Cut(after, []byte("\n"))
	tracer, err := strconv.Atoi(string(bytes.TrimSpace(line)))
	return err == nil && tracer != 0 && unix.Tgkill(os.Getpid(), tracer, 0) == nil
}

// detach lets a stopped thread go, with the signal that it was about to get. It says false for one that was killed
// meanwhile: its end follows.
func detach(tid int, signal unix.Signal) bool {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(tid), 0, uintptr(signal), 0, 0)
	return errno != unix.ESRCH
}

// shortWait is the time between two looks at a thread, seizeTries how often one that can't be traced is tried again.
const (
	shortWait  = 50 * time.Microsecond
	seizeTries = 20
)

// finish waits until the traced thread stops or ends, and lets it go or kills it. This thread has no other children than
// what it traces.
func (t *trace) finish() {
	options := unix.WSTOPPED | unix.WNOTHREAD
	if t.siblings {
		options |= unix.WNOHANG
	}
	for looks := 1; ; looks++ {
		pid, state, err := peek(-1, options)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return // it was reaped by its parent
		case pid == 0:
			// The first thread of several has no end before the others have: nothing would be heard of it.
			if looks%deadLooks == 0 && target(t.tid).isDead() {
				_ = unix.Kill(t.tid, unix.SIGKILL)
			}
			pause()
			continue
		case state == Ended:
			reapTraced(pid)
			return
		}
		if t.stopped(pid) {
			return
		}
	}
}

// deadLooks is how many looks pass until the thread is looked at whether it has ended.
const deadLooks = 20

// isDead reports whether a thread has ended and waits to be reaped.
func (t target) isDead() bool {
	state, _ := t.stat()
	return state == "Z" || state == "X"
}

// stat returns a thread's state, as ps shows it, and its parent; both are empty if there is no such thread.
func (t target) stat() (state, parent string) {
	stat, err := os.ReadFile(t.proc("stat"))
	if err != nil {
		return "", ""
	}
	// They follow the name, which is in parentheses and may hold any byte.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return "", ""
	}
	return string(fields[0]), string(fields[1])
}

// pause waits on this thread for shortWait: no test depends on it.
func pause() {
	t := unix.NsecToTimespec(shortWait.Nanoseconds())
	_ = unix.Nanosleep(&t, nil)
}

// reapTraced takes away the end of a traced process, so that its parent learns of it. This process's own children are
// reaped by whoever waits for them.
func reapTraced(pid int) {
	if isOwnChild(pid) {
		return
	}
	_, _ = unix.Wait4(pid, nil, unix.WALL|unix.WNOTHREAD|unix.WNOHANG, nil)
}

// isOwnChild reports whether this process is the parent, of a process and not of one of its threads: those are reaped by
// who traces them.
func isOwnChild(pid int) bool {
	if unix.Tgkill(pid, pid, 0) != nil {
		return false
	}
	_, parent := target(pid).stat()
	return parent == strconv.Itoa(os.Getpid())
}

// stopped handles a stop, and reports whether the trace is over.
func (t *trace) stopped(pid int) bool {
	var status unix.WaitStatus
	got, err := unix.Wait4(pid, &status, unix.WALL|unix.WNOTHREAD|unix.WNOHANG, nil)
	if err != nil || got != pid || !status.Stopped() {
		return errors.Is(err, unix.ECHILD)
	}
	switch int(status) >> eventShift {
	case unix.PTRACE_EVENT_EXEC:
		if t.expected != nil && t.compare(pid, t.expected) {
			return detach(pid, 0)
		}
		_ = unix.Kill(pid, unix.SIGKILL)
		return false // its end follows
	case unix.PTRACE_EVENT_STOP:
		return detach(pid, 0)
	default:
		return detach(pid, status.StopSignal())
	}
}

// running identifies the program that a process runs. Without an error, nil says that the process was killed.
func (w *watch) running(pid int) (*openFile, error) {
	fd, err := unix.Open(target(pid).proc("exe"), unix.O_PATH|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return w.programs.identify(fd)
}

// refuse counts a program that may not run, and says so.
func (w *watch) refuse(path, rule string) (mayRun bool) {
	w.observed.addRefused(path, rule)
	return false
}

// compare reports whether what was executed may run, and counts it.
func (w *watch) compare(pid int, v *verdict) bool {
	f, err := w.running(pid)
	switch {
	case err != nil:
		return w.refuse(v.path, result.RuleChanged)
	case f == nil:
		return false
	}
	defer f.close()
	p := w.programs.allowed(f)
	if p == nil {
		return w.refuse(f.path, result.RuleChanged)
	}
	path := f.path
	if p.multiCall {
		name, listed := p.calledAs(v.startedPath(pid), startedArguments(pid, 2))
		if path = filepath.Join(filepath.Dir(f.path), name); !listed {
			return w.refuse(path, result.RuleName)
		}
	}
	if v.script != "" {
		w.observed.addExecuted(v.script)
	}
	w.observed.addExecuted(path)
	return true
}
