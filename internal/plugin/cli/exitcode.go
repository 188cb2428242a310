package cli

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"

	"toolcall.dev/operator/api/v1alpha1"
)

// Exit codes for calls whose command has no exit code. timeout(1), shells and container tools use the same codes.
const (
	CodeError     = 1   // errors of commands that don't follow a call
	codeTimedOut  = 124 // the time limit stopped the command
	CodeFailed    = 125 // the call could not be created, started or followed
	CodeDenied    = 126 // the call was denied
	codeNotFound  = 127 // the program was not found
	codeSignal    = 128 // plus the signal's number
	CodeCancelled = 130 // the call was cancelled, for example with Ctrl-C
	CodePipe      = 141 // the reader closed the pipe
)

// OutputError ends a command whose output can't be written: without a word where nobody reads it any more, and otherwise with the error.
// On Windows, the two can't be told apart.
func OutputError(err error, code int) *ExitError {
	if errors.Is(err, syscall.EPIPE) || runtime.GOOS == "windows" {
		return &ExitError{Code: CodePipe}
	}
	return &ExitError{Code: code, Err: fmt.Errorf("write the output: %w", err)}
}

// AnnotationCode on a command means that its errors exit with CodeFailed, because 1 can be the exit code of a call.
const AnnotationCode = "exit-code"

// ExitCodesHelp is part of the help of the commands that follow calls.
const ExitCodesHelp = `The exit code is the exit code of the command in the call. If there is none:
  124    the time limit stopped the command
  125    the call could not be created, started or followed, or its pod was lost
  126    the call was denied
  127    the program is not in the environment (or the command exited with 127)
  128+n  signal n ended the command, for example 137 for SIGKILL or out of memory
  130    the call was cancelled`

// ExitCode returns the exit code for a finished call.
func ExitCode(call *v1alpha1.ToolCall) int {
	s := &call.Status
	switch {
	case s.Phase == v1alpha1.PhaseSucceeded:
		return 0
	case s.Phase == v1alpha1.PhaseDenied:
		return CodeDenied
	case s.Phase == v1alpha1.PhaseCancelled:
		return CodeCancelled
	case s.Reason == v1alpha1.ReasonTimedOut:
		return codeTimedOut
	case s.Reason == v1alpha1.ReasonCommandNotFound:
		return codeNotFound
	case s.Reason == v1alpha1.ReasonOOMKilled:
		return codeSignal + signalNumber("SIGKILL")
	case s.Signal != "":
		return codeSignal + signalNumber(s.Signal)
	case s.ExitCode != nil && *s.ExitCode > 0 && *s.ExitCode <= 255:
		return int(*s.ExitCode)
	default:
		return CodeFailed
	}
}

// signals lists Linux signals by number, starting at 1: the call ran on Linux, whatever system the plugin runs on.
var signals = []string{
	"SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1",
	"SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP",
	"SIGTTIN", "SIGTTOU", "SIGURG", "SIGXCPU", "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS",
}

// signalNumber returns 0 for an unknown name, so that the exit code still says that a signal ended the command.
func signalNumber(name string) int { return slices.Index(signals, name) + 1 }
