package kernel

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// ControlFD is the descriptor by which a process that ForkSelf started has its end of the socket.
const ControlFD = 3

// ForkSelf starts this program again by another name, in a session of its own and with this one's outputs. It returns this process's end of
// a socket between both.
func ForkSelf(name string, env ...string) (pid, socket int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(pair[1])
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(null)
		pid, err = syscall.ForkExec("/proc/self/exe", []string{name}, &syscall.ProcAttr{
			Dir: "/", Env: append([]string{}, env...), // nil would be our own
			Files: []uintptr{uintptr(null), 1, 2, uintptr(pair[1])},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
	}
	if err != nil {
		unix.Close(pair[0])
	}
	return pid, pair[0], err
}
