package kernel

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// A thread that starts a command is in the command's domain, so that the command may signal it, and with it this whole process.
// The command is therefore held before its first instruction until the thread has ended.

// Hold stops a child that the calling thread started with syscall.SysProcAttr.Ptrace, before the first instruction of its
// program. The child isn't traced any more then, and stays stopped until Release.
func Hold(pid int) {
	for {
		_, hasEnded, err := peek(pid, unix.WSTOPPED|unix.WNOTHREAD)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			_ = unix.Kill(pid, unix.SIGKILL) // nobody would let it go
		case !hasEnded:
			detach(pid, unix.SIGSTOP)
		}
		return // one that was killed meanwhile is reaped like others
	}
}

// yields is how often Release gives its processor away before it sleeps: most threads have ended by then, and a sleep takes longer.
const yields = 16

// Release lets a child run that is held, as soon as the thread that started it has ended.
func Release(pid, thread int) {
	for tries := 0; unix.Tgkill(os.Getpid(), thread, 0) == nil; tries++ {
		if tries < yields {
			_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			continue
		}
		pause()
	}
	_ = unix.Kill(pid, unix.SIGCONT)
}
