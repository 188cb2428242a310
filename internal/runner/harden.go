package runner

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"unsafe"

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
// signals still gets them. Outside of the first process of a container, SIGKILL and SIGSTOP still end or stop it. Call
// Harden before the first Run. Commands aren't affected: a program becomes readable again when it is executed.
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
	return errors.Join(handleFaults(), dropOthers())
}

// faults are signals that Go takes for its own mistake, unless they were sent by kill or tgkill.
var faults = []uintptr{
	uintptr(unix.SIGILL), uintptr(unix.SIGTRAP), uintptr(unix.SIGBUS), uintptr(unix.SIGFPE), uintptr(unix.SIGSEGV), uintptr(unix.SIGSYS),
}

// dropSent is the address of a handler that drops one of the faults which a process sent, by whatever means: sigqueue, or a
// descriptor that has it sent (F_SETSIG). Their codes are negative then, and those of the kernel's own aren't. The handler
// passes these on to goHandler.
var dropSent uint64

// goHandler is the address of Go's own handler.
var goHandler uint64 //nolint:unused // the handler in assembly reads it

func handleFaults() error {
	for _, s := range faults {
		var action, old signalAction
		if err := action.exchange(s, nil); err != nil {
			return err
		}
		if action[0] == dropSent {
			continue
		}
		goHandler, action[0] = action[0], dropSent
		if err := old.exchange(s, &action); err != nil {
			return err
		}
	}
	return nil
}

// droppedSignals are what C libraries keep for their threads, and Go can't be asked to handle: cancelling a thread, changing
// the user of all of them, and calling into each. And one that Go takes for a fault, and the kernel never sends by itself.
var droppedSignals = []uintptr{32, 33, 34, uintptr(unix.SIGSTKFLT)}

// dropSignal is the address of a handler that only returns.
var dropSignal uint64

// dropOthers has these signals dropped, unless Go or a C library uses one itself.
//
// Linux protects the first process of a container from a signal that has no handler, but it looks only at whether the
// main thread blocks the signal: while Go starts a thread or a process there, another thread receives the signal and the
// process ends (sig_ignored and complete_signal in kernel/signal.c).
func dropOthers() error {
	var drop, current signalAction
	// What returns from a handler, and on which stack it runs, is what Go sets for its own.
	if err := drop.exchange(uintptr(unix.SIGUSR1), nil); err != nil {
		return err
	}
	drop[0] = dropSignal
	for _, s := range droppedSignals {
		if err := current.exchange(s, nil); err != nil {
			return err
		}
		const defaultAction = 0
		if current[0] != defaultAction && s != uintptr(unix.SIGSTKFLT) {
			continue
		}
		if err := current.exchange(s, &drop); err != nil {
			return err
		}
	}
	return nil
}

// signalAction is the kernel's sigaction on amd64 and arm64: the handler, its flags, where it returns to, and a mask.
type signalAction [4]uint64

// exchange reads the action of a signal into a, and sets another one if there is one.
func (a *signalAction) exchange(s uintptr, action *signalAction) error {
	const maskSize = 8
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(action)), uintptr(unsafe.Pointer(a)), maskSize, 0, 0)
	if errno != 0 {
		return fmt.Errorf("handle signal %d: %w", s, errno)
	}
	return nil
}
