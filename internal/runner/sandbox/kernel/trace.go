package kernel

import (
	"errors"

	"golang.org/x/sys/unix"
)

// seizeTries is how often a thread that can't be traced is tried again.
const seizeTries = 20

// FollowExec lets a system call that executes a program go on, and has mayRun look at what really runs before the first instruction
// of it: the process is killed if that may not run. The error says that the thread can't be traced, or is ESRCH if it is gone; its
// call still waits then. The calling thread must trace nothing else.
func (l Listener) FollowExec(n *Notification, mayRun func(pid int) bool) error {
	tid := int(n.thread)
	err := seize(tid, followExec)
	for tries := 0; errors.Is(err, unix.EPERM) && l.IsValid(n.ID) && (tries < seizeTries || n.Thread().isTracedHere()); tries++ {
		// Another worker is about to let it go, since an execution that failed is followed by the next at once; or it was
		// killed.
		pause()
		err = seize(tid, followExec)
	}
	if err != nil {
		return err
	}
	t := trace{tid: tid, siblings: n.Thread().hasSiblings()}
	// The interrupt ends the trace also when the execution fails.
	if l.Proceed(n.ID) {
		t.mayRun = mayRun
	}
	_ = unix.PtraceInterrupt(tid)
	t.finish()
	return nil
}

// trace is that of one thread, up to the end of its execution.
type trace struct {
	tid int
	// siblings says that its process has other threads.
	siblings bool
	// mayRun looks at what it executes; nil if it may execute nothing.
	mayRun func(pid int) bool
}

// deadLooks is how many looks pass until the thread is looked at whether it has ended.
const deadLooks = 20

// finish waits until the traced thread stops or ends, and lets it go or kills it. This thread has no other children than
// what it traces.
func (t *trace) finish() {
	options := unix.WSTOPPED | unix.WNOTHREAD
	if t.siblings {
		options |= unix.WNOHANG
	}
	for looks := 1; ; looks++ {
		pid, hasEnded, err := peek(-1, options)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return // it was reaped by its parent
		case pid == 0:
			// The first thread of several has no end before the others have: nothing would be heard of it.
			if looks%deadLooks == 0 && Thread(t.tid).isDead() {
				_ = unix.Kill(t.tid, unix.SIGKILL)
			}
			pause()
			continue
		case hasEnded:
			reapTraced(pid)
			return
		}
		if t.stopped(pid) {
			return
		}
	}
}

// reapTraced takes away the end of a traced process, so that its parent learns of it. This process's own children are
// reaped by whoever waits for them.
func reapTraced(pid int) {
	if !Thread(pid).isOwnChild() {
		_, _ = unix.Wait4(pid, nil, unix.WALL|unix.WNOTHREAD|unix.WNOHANG, nil)
	}
}

// stopped handles a stop, and reports whether the trace is over.
func (t *trace) stopped(pid int) bool {
	var status unix.WaitStatus
	got, err := unix.Wait4(pid, &status, unix.WALL|unix.WNOTHREAD|unix.WNOHANG, nil)
	if err != nil || got != pid || !status.Stopped() {
		return errors.Is(err, unix.ECHILD)
	}
	switch eventOf(status) {
	case unix.PTRACE_EVENT_EXEC:
		if t.mayRun != nil && t.mayRun(pid) {
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
