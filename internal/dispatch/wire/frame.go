package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
)

var (
	// ErrTooLarge says that a frame is over its bound.
	ErrTooLarge = errors.New("frame is larger than allowed")
	// ErrUnknownMessage says that a frame carries none of the messages that this version knows. The frame was read
	// whole: the next one can be read.
	ErrUnknownMessage = errors.New("unknown message")
)

// headerSize is the length of the length.
const headerSize = 4

// Encode gives the frame of a message, which must be within its bound.
func Encode(m *Message) ([]byte, error) { return EncodeInto(nil, m) }

// EncodeInto is Encode, in the memory of a slice as far as that suffices. What was in the slice is lost.
func EncodeInto(memory []byte, m *Message) ([]byte, error) {
	frame := bytes.NewBuffer(memory[:0])
	frame.Write(make([]byte, headerSize))
	enc := json.NewEncoder(frame)
	// Escaping for HTML would make six bytes of one.
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return nil, fmt.Errorf("encode frame: %w", err)
	}
	// The encoder has added the line feed.
	switch {
	case m.Data != nil:
		frame.Write(m.Data.Payload)
	case m.Part != nil:
		frame.Write(m.Part.Payload)
	}
	size := frame.Len() - headerSize
	if limit := m.limit(); size > limit {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, limit)
	}
	binary.BigEndian.PutUint32(frame.Bytes(), uint32(size))
	return frame.Bytes(), nil
}

func (m *Message) limit() int {
	switch {
	case m.Hello != nil:
		return MaxHello
	case m.Result != nil:
		return MaxResult
	case m.Held != nil:
		return MaxHeld
	case m.Data != nil:
		return MaxData
	case m.Part != nil:
		return MaxPartFrame
	case m.State != nil:
		return MaxState
	case m.Ping != nil, m.Read != nil, m.CancelRead != nil, m.Known != nil, m.Want != nil, m.CancelTransfer != nil:
		return MaxControl
	default:
		return MaxAssignment
	}
}

// Write sends one message.
func Write(w io.Writer, m *Message) error {
	frame, err := Encode(m)
	if err != nil {
		return err
	}
	_, err = w.Write(frame)
	return err
}

// Read receives one message of at most limit bytes. It reads nothing past the frame.
func Read(r io.Reader, limit int) (*Message, error) {
	size, err := ReadHeader(r, limit)
	if err != nil {
		return nil, err
	}
	m := &Message{}
	payload, err := decodeBody(r, make([]byte, size), m)
	if err != nil {
		return nil, err
	}
	return m.checked(payload)
}

// ReadHeader receives a frame's length, so that the reader can decide about the body before it takes memory for it.
func ReadHeader(r io.Reader, limit int) (int, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if uint64(size) > uint64(limit) {
		return 0, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, limit)
	}
	return int(size), nil
}

// ReadFromRunner receives the body of a frame that a runner sent. It decodes only what runners send: what others send
// could take many times the memory of its encoding.
func ReadFromRunner(r io.Reader, size int) (*Message, error) { return readFromRunner(r, size, nil) }

// ReadAskedFromRunner is ReadFromRunner for a frame that can be a Part that was asked for, whose memory is used again once it is
// released.
func ReadAskedFromRunner(r io.Reader, size int) (*Message, error) {
	return readFromRunner(r, size, newMemory(size))
}

func readFromRunner(r io.Reader, size int, memory *partMemory) (*Message, error) {
	var body struct {
		Hello  *Hello  `json:"hello"`
		Result *Result `json:"result"`
		Ping   *Ping   `json:"ping"`
		Held   *Held   `json:"held"`
		Known  *Known  `json:"known"`
		Data   *Data   `json:"data"`

		Part  *Part          `json:"part"`
		State *TransferState `json:"state"`
	}
	payload, err := decodeBody(r, memory.bytes(size), &body)
	if err != nil {
		return nil, err
	}
	m := &Message{
		Hello: body.Hello, Result: body.Result, Ping: body.Ping, Held: body.Held, Known: body.Known,
		Data: body.Data, Part: body.Part, State: body.State,
	}
	if m.Part != nil {
		m.Part.memory = memory
	}
	return m.checked(payload)
}

// dataStart and partStart are how the frames start that aren't JSON alone.
var dataStart, partStart = []byte(`{"data":{`), []byte(`{"part":{`)

// decodeBody reads the body of a frame into memory of its size and decodes the JSON. It returns what follows that in one of Data or Part,
// in the same memory.
func decodeBody(r io.Reader, body []byte, into any) (payload []byte, err error) {
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("frame ended early: %w", err)
	}
	if bytes.HasPrefix(body, dataStart) || bytes.HasPrefix(body, partStart) {
		body, payload, _ = bytes.Cut(body, []byte{'\n'})
	}
	if err := json.Unmarshal(body, into); err != nil {
		return nil, fmt.Errorf("decode frame: %w", err)
	}
	return payload, nil
}

// checked returns the message if exactly one of its fields is set, and what follows it is its own.
func (m *Message) checked(payload []byte) (*Message, error) {
	if m.Data != nil {
		if err := takePayload(payload, m.Data.Bytes, &m.Data.Payload); err != nil {
			return nil, err
		}
	}
	if m.Part != nil {
		if err := takePayload(payload, m.Part.Bytes, &m.Part.Payload); err != nil {
			return nil, err
		}
	}
	n := 0
	for _, field := range reflect.ValueOf(*m).Fields() {
		if !field.IsNil() {
			n++
		}
	}
	switch n {
	case 0:
		return nil, ErrUnknownMessage
	case 1:
		return m, nil
	default:
		return nil, fmt.Errorf("a frame carries one message, this one %d", n)
	}
}
