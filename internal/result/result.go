// Package result describes how one process ended: its reason, exit code or signal, times, and what was
// kept of its two output streams. It turns streams into the bounded texts that a status holds, into the
// one text that a model reads, and into the compact copy that a container leaves as its termination
// message.
//
// Inputs are what a supervisor measured, or bytes that claim to come from one: Validate and
// DecodeTermination take nothing on trust and never panic.
//
// Invariants: a text is byte-exact when all of a stream was kept, is valid UTF-8 and fits; otherwise it
// says how many bytes were left out. A cut never adds a replacement character. Every function takes time
// in proportion to its input.
//
// The package is pure: it starts no process, and reads no clock and no file. It is linked into the runner of every
// pod, so it imports only the standard library and the plain data of sandbox/rules.
package result

import "time"

// Outcome is what is known of one process after its end.
type Outcome struct {
	// Reason is one of the constants of this package.
	Reason string `json:"reason"`
	// Message is a sentence for a person.
	Message string `json:"message,omitempty"`
	// Started is true when the process was started. When false it certainly never ran.
	Started bool `json:"started,omitempty"`
	// ExitCode of a process that ended by itself; nil for another one, and when nothing ran.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Signal is the name of the signal that ended the process, e.g. SIGKILL.
	Signal string `json:"signal,omitempty"`
	// OOMKilled is true when the kernel killed any process of the command for memory, whatever the reason says.
	OOMKilled bool `json:"oomKilled,omitempty"`
	// StartTime and CompletionTime are the process's, by the clock of its machine.
	StartTime      time.Time `json:"startTime,omitzero"`
	CompletionTime time.Time `json:"completionTime,omitzero"`
	// DurationMS is the process's wall-clock time by the monotonic clock.
	DurationMS int64 `json:"durationMS,omitempty"`
	// Stdout and Stderr are what was kept of the output.
	Stdout Stream `json:"stdout,omitzero"`
	Stderr Stream `json:"stderr,omitzero"`
	// Output is what a Screen shows of both, in the order in which they came. It is empty when that is the bytes of one of them,
	// and nothing came of the other; and when the order isn't known.
	Output Stream `json:"output,omitzero"`
	// LeftRunning is how many processes the command left running when it ended by itself. They were ended with it.
	LeftRunning int64 `json:"leftRunning,omitempty"`
	// Usage is what the command took; nil when nobody knows, and for a file action.
	Usage *Usage `json:"usage,omitempty"`
	// WorkingDir is the directory that the process started in, symbolic links resolved.
	WorkingDir string `json:"workingDir,omitempty"`
	// Executed and Refused are the programs that a call with rules executed, and those that it was not allowed to, in the
	// order in which they came. MoreExecuted and MoreRefused count what isn't in the lists.
	Executed     Programs `json:"executed,omitempty"`
	MoreExecuted int64    `json:"moreExecuted,omitempty"`
	Refused      Programs `json:"refused,omitempty"`
	MoreRefused  int64    `json:"moreRefused,omitempty"`
	// Refusal is a sentence or two about the programs and the hosts that were refused, for a person.
	Refusal string `json:"refusal,omitempty"`
	// Denied are the addresses that a call was not allowed to reach, in the order in which they came. MoreDenied counts what
	// isn't in the list.
	Denied     Denials `json:"denied,omitempty"`
	MoreDenied int64   `json:"moreDenied,omitempty"`
	// Isolation is which walls held; nil when the runner doesn't say.
	Isolation *Isolation `json:"isolation,omitempty"`
	// File is set for a file action that was begun: Started is true then, and there is neither process nor exit code.
	File *File `json:"file,omitempty"`
	// Artifacts is what was collected when the process had ended; nil for a call that collects nothing.
	Artifacts *Artifacts `json:"artifacts,omitempty"`
	// Redactions says which values of Secrets were replaced. Bytes and sums are of what was left.
	Redactions Redactions `json:"redactions,omitempty"`
}

// Exit returns a pointer to an exit code.
func Exit(code int32) *int32 { return &code }
