package runner

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// handledSignals are signals that end, dump or stop a Go program that doesn't handle them. The command runs as the same
// user and can send them. SIGTERM is left to the program, because it stops a container.
var handledSignals = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV,
	unix.SIGPIPE, unix.SIGALRM, unix.SIGSTKFLT, unix.SIGSYS, unix.SIGUSR1, unix.SIGUSR2,
	unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGIO, unix.SIGPWR,
}

// Harden protects this process from a command that runs as the same user. Its memory, environment, descriptors and maps
// can't be read through /proc, it can't be traced, and no signal but SIGTERM ends it. A program that handles other
// signals still gets them. Outside of the first process of a container, SIGKILL, SIGSTOP and the three real-time signals
// that C libraries use still end or stop it. Call Harden before the first Run. Commands aren't affected: a program
// becomes readable again when it is executed.
//
// The arguments of this process stay readable, so they must hold no secret. An image may name another signal than
// SIGTERM for stopping its containers; the program has to handle that one itself.
func Harden() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide the process from others: %w", err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return fmt.Errorf("read the limit of core files: %w", err)
	}
	limit.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return fmt.Errorf("turn core files off: %w", err)
	}
	// The signals are received and dropped. If they were ignored, the command would inherit that.
	signal.Notify(make(chan os.Signal, 1), handledSignals...)
	return nil
}
