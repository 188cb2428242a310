package runner

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// handledSignals are the signals that would end, dump or stop a Go program which doesn't ask for them. A command runs
// as the same user and can send them. SIGTERM is left to the program: it is how a container is stopped.
var handledSignals = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV,
	unix.SIGPIPE, unix.SIGALRM, unix.SIGSTKFLT, unix.SIGSYS, unix.SIGUSR1, unix.SIGUSR2,
	unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGIO, unix.SIGPWR,
}

// Harden keeps a command that runs as the same user out of this process: its memory, environment,
// descriptors and maps can't be read through /proc, it can't be traced, and no signal but SIGTERM ends it
// (nor do SIGKILL and SIGSTOP end the first process of a container). A program that handles others of them
// still gets those. Elsewhere than in the first process of a container SIGKILL, SIGSTOP and the three
// real-time signals that C libraries use can't be kept off. Call it before the first Run. What Run starts isn't affected: a program becomes
// readable again when it is executed.
//
// The arguments of this process stay readable; they must hold no secret. An image may name another signal
// than SIGTERM for stopping its containers: a program that wants to know of that one handles it.
func Harden() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hiding the process from others: %w", err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return fmt.Errorf("reading the limit of core files: %w", err)
	}
	limit.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return fmt.Errorf("turning core files off: %w", err)
	}
	// Asked for and dropped, not ignored: what is ignored would be for the command too.
	signal.Notify(make(chan os.Signal, 1), handledSignals...)
	return nil
}
