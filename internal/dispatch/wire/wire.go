// Package wire is what operator and runner say to each other: the messages and their framing.
//
// A connection carries frames in both directions: four bytes of length, big endian, then a JSON object
// with exactly one of its fields set. The runner opens with Hello. The operator answers with Assign once
// it has durably recorded which runner has the call, or with Refuse. The runner then sends Result, as
// often as it takes until an Ack comes back. Cancel may come at any time, Ping is answered by Pong.
//
// The package is linked into every tool pod: it imports nothing but the standard library and the plain
// data types that the messages carry. It opens no connection and decides nothing.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
)

// Version of the protocol. An operator refuses a runner that speaks another one.
const Version = 1

// Bounds of a frame's body, in bytes.
const (
	// MaxHello bounds what an unauthenticated peer may send.
	MaxHello = 16 << 10
	// MaxFrame bounds all other frames: both streams at their largest in base64, with room to spare.
	MaxFrame = 16 << 20
)

// ErrTooLarge says that a peer announced a frame over the bound.
var ErrTooLarge = errors.New("frame is larger than allowed")

// Message is one frame. Exactly one field is set.
type Message struct {
	Hello  *Hello      `json:"hello,omitempty"`
	Assign *Assignment `json:"assign,omitempty"`
	Refuse *Refusal    `json:"refuse,omitempty"`
	Result *Result     `json:"result,omitempty"`
	Ack    *Ack        `json:"ack,omitempty"`
	Cancel *Cancel     `json:"cancel,omitempty"`
	Ping   *Ping       `json:"ping,omitempty"`
	Pong   *Ping       `json:"pong,omitempty"`
}

// Hello introduces a runner. Who it is, is proved by the token and by the key of its TLS certificate.
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
	// CallUID is the call that this runner was given on an earlier connection; empty when it waits for one.
	CallUID string `json:"callUID,omitempty"`
}

// Assignment is a call, ready to run but for what only the pod knows.
type Assignment struct {
	CallUID string `json:"callUID"`
	// CallName is what the runner says in later hellos.
	CallName string `json:"callName"`
	// Argv is the command; result of the mapping, with the shell's or interpreter's prefix.
	Argv []string `json:"argv"`
	// Source is a snippet for an interpreter, whose path the runner adds to Argv.
	Source []byte `json:"source,omitempty"`
	// HasSource tells an empty snippet from none.
	HasSource bool   `json:"hasSource,omitempty"`
	Stdin     []byte `json:"stdin,omitempty"`
	// TimeoutMilliseconds is the limit of the process's wall-clock time.
	TimeoutMilliseconds int64 `json:"timeoutMilliseconds"`
	MaxBytesPerStream   int   `json:"maxBytesPerStream"`
	DenyNetwork         bool  `json:"denyNetwork,omitempty"`
	// Environment is the plan that the runner finishes with the image's own variables.
	Environment envresolve.Plan `json:"environment"`
}

// Result is how a call ended.
type Result struct {
	CallUID string         `json:"callUID"`
	Outcome result.Outcome `json:"outcome"`
	// Environment is what was resolved: names and sources, never values.
	Environment Environment `json:"environment"`
}

// Environment is what a runner resolved.
type Environment struct {
	WorkingDir string                   `json:"workingDir,omitempty"`
	Vars       []envresolve.ResolvedVar `json:"vars,omitempty"`
	Stripped   []string                 `json:"stripped,omitempty"`
}

// Refusal ends a connection for good: the runner must exit without running anything.
type Refusal struct {
	Reason string `json:"reason"`
}

// Ack says that a call's result is durably recorded.
type Ack struct {
	CallUID string `json:"callUID"`
}

// Cancel asks to stop the call.
type Cancel struct {
	CallUID string `json:"callUID"`
}

// Ping asks for a Pong.
type Ping struct{}

// Write sends one message.
func Write(w io.Writer, m *Message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	if len(body) > MaxFrame {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(body), MaxFrame)
	}
	frame := make([]byte, 4, 4+len(body))
	binary.BigEndian.PutUint32(frame, uint32(len(body)))
	_, err = w.Write(append(frame, body...))
	return err
}

// Read receives one message of at most limit bytes. It reads nothing past the frame.
func Read(r io.Reader, limit int) (*Message, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if uint64(size) > uint64(limit) {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, limit)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("frame ended early: %w", err)
	}
	m := &Message{}
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("decode frame: %w", err)
	}
	if n := m.set(); n != 1 {
		return nil, fmt.Errorf("a frame carries one message, this one %d", n)
	}
	return m, nil
}

func (m *Message) set() int {
	n := 0
	for _, present := range []bool{
		m.Hello != nil, m.Assign != nil, m.Refuse != nil, m.Result != nil,
		m.Ack != nil, m.Cancel != nil, m.Ping != nil, m.Pong != nil,
	} {
		if present {
			n++
		}
	}
	return n
}
