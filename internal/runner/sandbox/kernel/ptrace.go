package kernel

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// What a trace follows: one execve, or also what the thread starts. That also stops threads at their end: when another thread's program
// takes the first one's place, no leave that was meant for the first reaches it.
const (
	followExec = unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL
	followAll  = followExec | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXIT
)

// eventOf is what caused a stop; 0 for a signal that the thread is about to get.
func eventOf(status unix.WaitStatus) int { return int(status) >> 16 }

// seize traces a thread without stopping it. It dies with this process.
func seize(tid int, follow uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tid), 0, follow, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// detach lets a stopped thread go, with the signal that it was about to get. It says false for one that was killed
// meanwhile: its end follows.
func detach(tid int, signal unix.Signal) bool { return resume(tid, unix.PTRACE_DETACH, signal) }

// resume lets a stopped thread go on, and reports false for one that was killed meanwhile: it needs no leave.
func resume(tid int, request uintptr, signal unix.Signal) bool {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, request, uintptr(tid), 0, uintptr(signal), 0, 0)
	return errno != unix.ESRCH
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

// shortWait is the time between two looks at a thread.
const shortWait = 50 * time.Microsecond

// pause waits on this thread for shortWait: no test depends on it.
func pause() {
	t := unix.NsecToTimespec(shortWait.Nanoseconds())
	_ = unix.Nanosleep(&t, nil)
}

// TryTrace reads the memory of a child and traces it for a moment, and reports what of it works. The calling thread must trace nothing
// else.
func TryTrace(pid int) (reads, traces bool) {
	// Where the child's program lies is in its own header, which a static program has at a fixed address; any answer but
	// a refusal says that reading is allowed.
	_, err := Thread(pid).read(make([]byte, 8), pageSize)
	reads = err == nil || errors.Is(err, unix.EFAULT)
	if seize(pid, followAll) != nil || unix.PtraceInterrupt(pid) != nil {
		return reads, false
	}
	if _, err := awaitStop(pid); err != nil {
		return reads, false
	}
	detach(pid, 0)
	return reads, true
}
