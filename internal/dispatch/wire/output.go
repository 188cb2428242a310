package wire

import (
	"encoding/hex"
	"errors"
	"fmt"

	"toolcall.dev/operator/internal/result"
)

// Streams of a call.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// ReadOutput asks for a part of a stream that a call's process wrote, or writes.
type ReadOutput struct {
	// ID is the operator's name for this message, on this connection.
	ID      uint64 `json:"id"`
	CallUID string `json:"callUID"`
	Stream  string `json:"stream,omitempty"`
	// Artifact is the path of a file that the call's runner kept, in place of a stream.
	Artifact string `json:"artifact,omitempty"`
	Offset   int64  `json:"offset"`
	// Max is how many bytes may come, up to MaxRead; 0 asks only what is known of the stream.
	Max int `json:"max"`
	// Follow lets the answer wait until the stream has more than Offset, or has ended.
	Follow bool `json:"follow,omitempty"`
}

// Check says why a runner doesn't answer.
func (r *ReadOutput) Check() error {
	switch {
	case !isUID(r.CallUID):
		return errors.New("invalid UID of the call")
	case r.Artifact != "" && (r.Stream != "" || len(r.Artifact) > result.MaxArtifactPath):
		return errors.New("an artifact is named by its path, and is of no stream")
	case r.Artifact == "" && r.Stream != Stdout && r.Stream != Stderr:
		return fmt.Errorf("there is no stream %.16q", r.Stream)
	case r.Offset < 0 || r.Max < 0 || r.Max > MaxRead:
		return fmt.Errorf("at most %d bytes can be read at a time, from an offset of 0 or more", MaxRead)
	}
	return nil
}

// CancelRead has a ReadOutput answered soon: nobody waits for it any more.
type CancelRead struct {
	ID uint64 `json:"id"`
}

// Data is a part of a stream, from Offset on, and what was known of the stream then.
type Data struct {
	ID     uint64 `json:"id"`
	Offset int64  `json:"offset"`
	// Bytes is the length of Payload, which follows the object.
	Bytes   int    `json:"bytes"`
	Payload []byte `json:"-"`
	// End says that it is the last frame that answers the ReadOutput. Each other one has a Payload.
	End bool `json:"end,omitempty"`
	// Unknown says that the runner doesn't have the stream, or no more.
	Unknown bool `json:"unknown,omitempty"`

	// Total is how many bytes the process has written. SHA256, in hexadecimal digits, is that of a stream that is complete; it
	// is empty when the process's end of the stream wasn't reached.
	Total    int64  `json:"total"`
	Complete bool   `json:"complete,omitempty"`
	SHA256   string `json:"sha256,omitempty"`
	// What is from MissingStart up to, not including, MissingEnd wasn't kept.
	MissingStart int64 `json:"missingStart,omitempty"`
	MissingEnd   int64 `json:"missingEnd,omitempty"`
	// Lost says that this is more than was to be left out: the pod's disk was full, broken or too slow.
	Lost bool `json:"lost,omitempty"`
}

// takePayload takes what followed an object that says how many bytes it is.
func takePayload(payload []byte, bytes int, into *[]byte) error {
	if bytes != len(payload) {
		return fmt.Errorf("an object that announces %d bytes comes with %d", bytes, len(payload))
	}
	if len(payload) > 0 {
		*into = payload
	}
	return nil
}

// Check says why a runner can't have measured what it says.
func (d *Data) Check() error {
	end := d.Offset + int64(len(d.Payload))
	switch {
	case len(d.Payload) > MaxPayload:
		return fmt.Errorf("at most %d bytes come at a time, these are %d", MaxPayload, len(d.Payload))
	case len(d.Payload) == 0 && !d.End:
		return errors.New("an empty frame of data that isn't the last one")
	case d.Offset < 0, d.Total < 0, end < d.Offset, len(d.Payload) > 0 && end > d.Total:
		return errors.New("data outside of its stream")
	case d.MissingStart < 0, d.MissingStart > d.MissingEnd, d.MissingEnd > d.Total:
		return errors.New("a missing range outside of the stream")
	case !isSHA256(d.SHA256) || d.SHA256 != "" && !d.Complete:
		return errors.New("invalid SHA-256, or one of a stream that isn't complete")
	case d.Unknown && (!d.End || len(d.Payload) > 0):
		return errors.New("data of an unknown stream")
	}
	return nil
}

func isSHA256(s string) bool {
	raw, err := hex.DecodeString(s)
	return s == "" || err == nil && len(raw) == 32
}
