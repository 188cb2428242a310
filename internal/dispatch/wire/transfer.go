package wire

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/spec"
)

// TransferKind is what a Transfer does.
type TransferKind string

// Kinds of transfers.
const (
	// TransferRead sends a file, part by part, as the operator Wants it.
	TransferRead TransferKind = "Read"
	// TransferWrite writes a file of the Parts that come, whole or not at all.
	TransferWrite TransferKind = "Write"
	// TransferDelete deletes a file.
	TransferDelete TransferKind = "Delete"
	// TransferPack sends a directory as a tar archive, TransferUnpack writes what is in one below a directory. Each file of it
	// appears whole or not at all.
	TransferPack   TransferKind = "Pack"
	TransferUnpack TransferKind = "Unpack"
	// TransferInput writes the Parts that come to the standard input of a background call that runs.
	TransferInput TransferKind = "Input"
)

// Reasons for which input isn't taken. The Next of the State is the offset of the next byte of the input.
const (
	InputNotFound = "InputNotFound"
	InputOffset   = "InputOffset"
	InputFull     = "InputFull"
	InputClosed   = "InputClosed"
)

// Transfer begins to carry a file of a session up or down. State answers it.
type Transfer struct {
	// ID is the operator's name for it, on this connection.
	ID   uint64       `json:"id"`
	Kind TransferKind `json:"kind"`
	// Path is absolute, or relative to the directory of a call that sets none.
	Path string `json:"path,omitempty"`
	// IfSHA256 is the condition of a Write or a Delete: as in a File.
	IfSHA256 *string `json:"ifSHA256,omitempty"`
	// Whole says that all of a file that is read is wanted, so that one which Rules.MaxReadBytes doesn't allow is refused at once.
	Whole bool `json:"whole,omitempty"`
	// Rules are what the policy says about files. A limit of 0 is none.
	Rules spec.FileRules `json:"rules"`
	// Environment says which directories there are.
	Environment envresolve.Plan `json:"environment"`

	// CallUID is the call whose input it is, Offset what the input has had before. EOF closes it behind the last part.
	CallUID string `json:"callUID,omitempty"`
	Offset  int64  `json:"offset,omitempty"`
	EOF     bool   `json:"eof,omitempty"`
}

// maxTransferPath is the longest path that the kernel takes.
const maxTransferPath = 4096

// Check says why a runner doesn't begin.
func (t *Transfer) Check() error {
	switch {
	case t.Kind == TransferInput && (!isUID(t.CallUID) || t.Offset < 0):
		return errors.New("invalid UID of the call, or a negative offset")
	case t.Kind == TransferInput:
		return nil
	case !slices.Contains([]TransferKind{TransferRead, TransferWrite, TransferDelete, TransferPack, TransferUnpack}, t.Kind):
		return fmt.Errorf("there is no transfer %.16q", t.Kind)
	case t.Path == "" || len(t.Path) > maxTransferPath:
		return fmt.Errorf("a path must have 1 to %d bytes", maxTransferPath)
	case !utf8.ValidString(t.Path):
		// In a frame it would name another file.
		return errors.New("a path must be UTF-8")
	case t.Rules.MaxReadBytes < 0 || t.Rules.MaxWriteBytes < 0:
		return errors.New("a negative limit")
	case t.IfSHA256 != nil && *t.IfSHA256 != spec.AnySHA256 && !isSHA256(*t.IfSHA256):
		return fmt.Errorf("the condition must be a SHA-256 in hexadecimal digits, or %q", spec.AnySHA256)
	}
	return nil
}

// Want asks for a part of what a Transfer reads: of Max bytes, from Offset on. One Part answers. A file has them; of an archive
// the last Part has less, and End.
type Want struct {
	ID     uint64 `json:"id"`
	Offset int64  `json:"offset"`
	Max    int    `json:"max"`
}

// Check says why a runner doesn't answer.
func (w *Want) Check() error {
	if w.Offset < 0 || w.Max < 1 || w.Max > MaxPart {
		return fmt.Errorf("1 to %d bytes can be asked for at a time, from an offset of the file", MaxPart)
	}
	return nil
}

// Part is a part of a file, from Offset on. Those that are written come in their order, without a gap.
type Part struct {
	ID     uint64 `json:"id"`
	Offset int64  `json:"offset"`
	// Bytes is the length of Payload, which follows the object.
	Bytes   int    `json:"bytes"`
	Payload []byte `json:"-"`
	// End says that nothing more is written, or is in an archive. Only that part can be empty.
	End bool `json:"end,omitempty"`

	memory *partMemory
}

// Release lets the memory of the Payload be used again. Nobody may read the Payload afterwards. Without it, the garbage collector has
// 100 MiB to find for a file of 100 MiB.
func (p *Part) Release() {
	if p.memory != nil {
		partMemories.Put(p.memory)
		p.memory, p.Payload = nil, nil
	}
}

// partMemory has room for the frame of a Part.
type partMemory [MaxPartFrame]byte

var partMemories = sync.Pool{New: func() any { return new(partMemory) }}

// newMemory returns memory for a frame that can only be a Part; nil for another one.
func newMemory(size int) *partMemory {
	if size <= MaxData || size > MaxPartFrame {
		return nil
	}
	return partMemories.Get().(*partMemory)
}

// bytes are as many as a frame has.
func (m *partMemory) bytes(size int) []byte {
	if m == nil {
		return make([]byte, size)
	}
	return m[:size]
}

// Check says why nobody takes the part.
func (p *Part) Check() error {
	switch {
	case len(p.Payload) > MaxPart:
		return fmt.Errorf("at most %d bytes come at a time, these are %d", MaxPart, len(p.Payload))
	case len(p.Payload) == 0 && !p.End:
		return errors.New("an empty part that isn't the last one")
	case p.Offset < 0 || p.Offset+int64(len(p.Payload)) < p.Offset:
		return errors.New("a part whose offset is out of range")
	}
	return nil
}

// TransferState says how far a Transfer is: first that it was begun, of a Write then after each Part, and last that it has
// ended. A Read has begun when its file is summed.
type TransferState struct {
	ID uint64 `json:"id"`
	// Size and SHA256 are of the file: of a Read from the first on, of a Write at its end.
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// Next is how many bytes were written so far; at the end of an Input, how many its call has got in all.
	Next int64 `json:"next,omitempty"`
	// Created says that there was no file before.
	Created bool `json:"created,omitempty"`
	// Ended says that it has ended: well, unless there is a Reason, which Message explains.
	Ended   bool   `json:"ended,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

const (
	maxReasonBytes = 64
	// MaxMessageBytes is how long the Message of a TransferState may be.
	MaxMessageBytes = 1 << 10
)

// Check says why a runner can't mean that.
func (s *TransferState) Check() error {
	switch {
	case s.Size < 0 || s.Next < 0:
		return errors.New("a negative size or offset")
	case !isSHA256(s.SHA256):
		return errors.New("invalid SHA-256")
	case s.Reason != "" && !s.Ended, s.Reason == "" && s.Message != "":
		return errors.New("a reason before the end, or a message without a reason")
	case len(s.Reason) > maxReasonBytes || !isPlain(s.Reason) || len(s.Message) > MaxMessageBytes:
		return errors.New("the reason or the message is longer than it may be")
	}
	return nil
}

// CancelTransfer has a Transfer end soon: nobody waits for it any more. A Write that wasn't ended leaves nothing.
type CancelTransfer struct {
	ID uint64 `json:"id"`
}
