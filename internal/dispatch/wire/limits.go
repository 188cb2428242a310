package wire

import "toolcall.dev/operator/internal/result"

// Bounds of a frame's body, in bytes.
const (
	// MaxHello bounds what a peer may send before it is authenticated.
	MaxHello = 4 << 10
	// MaxControl bounds what a runner sends besides its hello and its result.
	MaxControl = 1 << 10
	// MaxResult is a little more than the largest legal result takes, with its environment and its decision.
	MaxResult = result.MaxEncoded + 168<<10 + MaxDecision
	// MaxHeld bounds a call that follows a hello.
	MaxHeld = MaxDecision + maxEncodedRest
	// MaxAssignment is the size of the largest assignment: a call as large as the API server stores one, its input in
	// base64, what was decided about it, and in a session the same, sealed.
	MaxAssignment = (maxCall/3+1)*4 + 2*MaxDecision + maxEncodedRest
	// MaxDecision bounds a sealed decision: it is the size of all annotations that an object may have.
	MaxDecision = 256 << 10
)

// Bounds of output.
const (
	// MaxRead is how many bytes a ReadOutput asks for at most.
	MaxRead = 64 << 10
	// MaxPayload is how many bytes of a stream are in a frame, MaxData the size of the frame.
	MaxPayload = 16 << 10
	MaxData    = MaxPayload + MaxControl
	// MaxReads is how many Reads a runner has at a time.
	MaxReads = 128
)

// Bounds of transfers.
const (
	// MaxPart is how many bytes of a file are in a frame, MaxPartFrame the size of the frame. It takes a few milliseconds, in
	// which nothing else can be sent.
	MaxPart      = 128 << 10
	MaxPartFrame = MaxPart + MaxControl
	// MaxUnansweredParts is how many Parts an operator sends, or asks for, before the first is answered.
	MaxUnansweredParts = 8
	// MaxTransfers is how many a runner has at a time.
	MaxTransfers = 8
	// MaxState bounds a TransferState: one byte of its message becomes at most six of JSON.
	MaxState = 6*MaxMessageBytes + maxEncodedRest
)

// Bounds of an Environment.
const (
	// MaxNames is how many variables are named in each list.
	MaxNames = result.MaxList
	// MaxNameBytes bounds one name.
	MaxNameBytes = 256
)

const (
	// maxEncodedRest is room for fields of a fixed size.
	maxEncodedRest = 1 << 10
	// maxCall is the size of the largest request that etcd takes.
	maxCall = 3 << 19
)
