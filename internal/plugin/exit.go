package plugin

import (
	"slices"

	"github.com/spf13/cobra"

	"toolcall.dev/operator/api/v1alpha1"
)

// Exit codes of a call that has none of its own. They are those of timeout(1), shells and container tools.
const (
	codeOther     = 1   // other commands than those that follow a call
	codeTimedOut  = 124 // the time limit ended it
	codeFailed    = 125 // it could not be created, started or followed
	codeDenied    = 126 // a guard refused it
	codeNotFound  = 127 // the program isn't there
	codeSignal    = 128 // plus the signal's number
	codeCancelled = 130 // cancelled, as by Ctrl-C
	codePipe      = 141 // nobody reads the output any more
)

// annotationCode on a command says that its own failures are codeFailed: 1 could be a call's.
const annotationCode = "exit-code"

// exitCodesHelp is part of the help of the commands that follow calls.
const exitCodesHelp = `The exit code is the command's own. When it has none:
  124  the time limit ended it
  125  it could not be created, started or followed, or its pod was lost
  126  it was denied
  127  the program isn't in the environment (or it exited 127 itself)
  128+n  signal n ended it, e.g. 137 for SIGKILL and for running out of memory
  130  it was cancelled`

func failureCode(command *cobra.Command) int {
	if command != nil && command.Annotations[annotationCode] != "" {
		return codeFailed
	}
	return codeOther
}

// exitCode is the exit code for a finished call.
func exitCode(call *v1alpha1.ToolCall) int {
	s := &call.Status
	switch {
	case s.Phase == v1alpha1.PhaseSucceeded:
		return 0
	case s.Phase == v1alpha1.PhaseDenied:
		return codeDenied
	case s.Phase == v1alpha1.PhaseCancelled:
		return codeCancelled
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
		return codeFailed
	}
}

// signals are Linux's, by number from 1: a call's signal is one of its node, whatever system this runs on.
var signals = []string{
	"SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1",
	"SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP",
	"SIGTTIN", "SIGTTOU", "SIGURG", "SIGXCPU", "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS",
}

// signalNumber is 0 for a name that isn't known, so that the code still says that it was a signal.
func signalNumber(name string) int { return slices.Index(signals, name) + 1 }
