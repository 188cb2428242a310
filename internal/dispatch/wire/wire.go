// Package wire is the protocol between operator and runner: the messages, their framing and their bounds.
//
// A connection carries frames in both directions: four bytes of length, big endian, then a JSON object
// with exactly one of its fields set. The runner opens with Hello. A runner that waits is sent Begin once the operator
// has durably recorded, in the status of a ToolCall or a ToolSession, that this runner is the one of that object: its
// Owner, for good. A call's runner takes that call, a session's runner many. Ping is answered by Pong; a Pong that
// nobody asked for keeps a connection alive.
//
// Each later Hello carries the owner, and is followed by a Held frame for each call that runs or whose result isn't
// acknowledged. Every message about a call can be repeated:
//
//	Assign   of a UID that the runner doesn't know: it remembers the UID and starts the command; Result follows.
//	         Of a call that runs: Result follows. Of one that has ended: Result. Of one that was acknowledged: Known.
//	Stop     of a call that runs: its command is stopped, and Result follows. Of one that has ended: nothing, its Result was
//	         sent. Of a UID that the runner doesn't know: it remembers never to start it, and sends a Result that says so.
//	Result   is sent once on each connection, and as an answer, until its Ack. It gives the Decision back.
//	End      stops what runs. The runner starts nothing more, and exits when all results are acknowledged.
//
// The runner of a call exits when the result of that is acknowledged. Refuse ends a connection: a runner that waits
// exits then, another one when the refusal is final.
//
// # Output
//
// Only the operator asks for output. ReadOutput asks for a part of a stream, and Data frames answer: in order, without a gap,
// at most its Max bytes in all, the last one with End. So what an operator asks for is what it has room for, and nothing comes
// that it didn't ask for. One that follows is answered when the stream has more than its offset, or has ended. CancelRead has
// it answered soon. At most MaxReads may be unanswered. A runner has one Data frame on its way at a time, of at most MaxData
// bytes, so that nothing else waits for long behind it. A connection's end ends what wasn't answered: the offsets of what came
// say where to go on.
//
// # Files
//
// A Transfer carries a file of a session up or down. Each end says how much it takes: of a file that is read, the operator Wants
// parts, and each is answered by one Part; of one that is written, the operator sends at most MaxUnansweredParts Parts ahead of
// the State that answers each. So neither end has to keep more than that. A State that says Ended is the last of each
// Transfer, also of a canceled one. At most MaxTransfers haven't ended at a time; a connection's end ends them all. As with
// Data, a runner has one Part on its way at a time, and so has an operator on each connection.
//
// Data and Part are the frames that aren't JSON alone: the object is followed by a line feed and as many bytes as its field
// bytes says.
//
// Both ends ignore fields that they don't know, and a runner ignores messages; the operator ends the connection for a message that no
// runner sends. Version says when that is not enough.
//
// The package is linked into every tool pod: it imports nothing but the standard library and the plain
// data types that the messages carry. It opens no connection and decides nothing.
package wire

import (
	"time"

	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/spec"
)

// Version is that of the protocol. Raise it when an operator and a runner of different versions can't complete a call with
// each other: an operator serves the runners of its own version only. One that waits and is refused exits, so that its pod is
// replaced; one that has a call keeps it, for an operator of its version.
const Version = 1

// PingInterval is how often a runner asks whether the operator is still there, and SilenceTimeout how long the operator may
// say nothing before the runner takes the connection for dead. That is less than a leader's lease: what a leader says that was
// paused meanwhile, and that another has followed, reaches nobody.
const (
	PingInterval   = 2 * time.Second
	SilenceTimeout = 3 * PingInterval
)

// ServerName is the name in the operator's certificate.
const ServerName = "dispatch.toolcall.dev"

// Message is one frame. Exactly one field is set.
type Message struct {
	Hello  *Hello   `json:"hello,omitempty"`
	Begin  *Begin   `json:"begin,omitempty"`
	End    *End     `json:"end,omitempty"`
	Refuse *Refusal `json:"refuse,omitempty"`
	Ping   *Ping    `json:"ping,omitempty"`
	Pong   *Ping    `json:"pong,omitempty"`

	// Of calls.
	Held   *Held       `json:"held,omitempty"`
	Assign *Assignment `json:"assign,omitempty"`
	Stop   *Stop       `json:"stop,omitempty"`
	Result *Result     `json:"result,omitempty"`
	Ack    *Ack        `json:"ack,omitempty"`
	Known  *Known      `json:"known,omitempty"`

	// Of output.
	Read       *ReadOutput `json:"read,omitempty"`
	CancelRead *CancelRead `json:"cancelRead,omitempty"`
	Data       *Data       `json:"data,omitempty"`

	// Of files.
	Transfer       *Transfer       `json:"transfer,omitempty"`
	Want           *Want           `json:"want,omitempty"`
	Part           *Part           `json:"part,omitempty"`
	State          *TransferState  `json:"state,omitempty"`
	CancelTransfer *CancelTransfer `json:"cancelTransfer,omitempty"`
}

// Hello introduces a runner. The token and the key of its TLS certificate prove who it is.
type Hello struct {
	Version   int    `json:"version"`
	Namespace string `json:"namespace"`
	// Call is the name of the call that the pod was made for: a hint where to look, proof of nothing.
	Call string `json:"call,omitempty"`
	// Pool is the name of the environment whose warm pool the pod was made for: a hint like Call.
	Pool   string `json:"pool,omitempty"`
	Job    string `json:"job"`
	JobUID string `json:"jobUID"`
	Pod    string `json:"pod"`
	PodUID string `json:"podUID"`
	Node   string `json:"node"`
	Token  string `json:"token"`
	// Support is what the node gives for holding rules. An operator needn't give a call to a runner that can't hold the
	// call's rules: it would end with IsolationUnavailable.
	Support *rules.Support `json:"support,omitempty"`
	// Serving is what the runner has; nil while it waits.
	Serving *Serving `json:"serving,omitempty"`
}

// Assignment is a call, ready to run except for what only the pod knows.
type Assignment struct {
	CallUID  string `json:"callUID"`
	CallName string `json:"callName"`
	// Argv is the command; result of the mapping, with the shell's or interpreter's prefix.
	Argv []string `json:"argv"`
	// Source is a snippet for an interpreter, whose path the runner adds to Argv.
	Source []byte `json:"source,omitempty"`
	// HasSource tells an empty snippet from none.
	HasSource bool `json:"hasSource,omitempty"`
	// Language is the snippet's, in lower case.
	Language string `json:"language,omitempty"`
	// File is an operation on files, in place of Argv.
	File  *spec.File `json:"file,omitempty"`
	Stdin []byte     `json:"stdin,omitempty"`
	// Bounds hold for the process; what came of the kernel's part of them is in the result's outcome.
	spec.Bounds
	// Network is what the command may connect to; nil restricts nothing, unless DenyNetwork does.
	Network *spec.Network `json:"network,omitempty"`
	// Collect says which files to keep when the process has ended; nil for none.
	Collect *spec.Collect `json:"collect,omitempty"`
	// Environment is the plan that the runner finishes with the image's own variables.
	Environment envresolve.Plan `json:"environment"`
	// Decision is what the operator decided about a session's call, sealed by it. The runner gives it back.
	Decision string `json:"decision,omitempty"`
	// Background says that a session's call is one of its MaxBackgroundCalls. It may have no limit of time.
	Background bool `json:"background,omitempty"`
}

// Refusal ends a connection.
type Refusal struct {
	Reason string `json:"reason"`
	// Final says that nobody wants what the runner has: it stops what runs, and exits. Otherwise a runner that has begun dials
	// again.
	Final bool `json:"final,omitempty"`
}

// Ack says that a call's result is durably recorded.
type Ack struct {
	CallUID string `json:"callUID"`
}

// Ping asks for a Pong.
type Ping struct{}
