package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
	"toolcall.dev/operator/internal/spec"
)

func frame(body string) io.Reader {
	head := make([]byte, 4)
	binary.BigEndian.PutUint32(head, uint32(len(body)))
	return io.MultiReader(bytes.NewReader(head), strings.NewReader(body))
}

// readFromRunner reads a frame as the operator does.
func readFromRunner(r io.Reader, limit int) (*wire.Message, error) {
	size, err := wire.ReadHeader(r, limit)
	if err != nil {
		return nil, err
	}
	return wire.ReadFromRunner(r, size)
}

func TestAMessageComesBackAsItWas(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string]*wire.Message{
		"an assignment": {Assign: &wire.Assignment{
			CallUID: "u", Argv: []string{"a b", "\"", "\n", "é", "<&>"}, Source: []byte{0, 255}, HasSource: true,
			Stdin: []byte("x"), Bounds: spec.Bounds{TimeoutMilliseconds: 1, MaxBytesPerStream: 2, DenyNetwork: true, Rules: &rules.Rules{Policy: "p", Programs: &rules.Programs{Allowed: []string{"ls"}, Own: "sh"}, WritePaths: []string{}}},
			Environment: envresolve.Plan{Blocklist: []string{"A_"}, Trusted: true},
		}},
		"a hello":   {Hello: &wire.Hello{Version: wire.Version, Namespace: "ns", Serving: &wire.Serving{Owner: wire.Owner{Kind: wire.KindCall, UID: "u", Name: "n"}, Taken: 1, Held: 1}}},
		"a result":  {Result: &wire.Result{CallUID: "u", Environment: wire.Environment{Stripped: []string{"A"}, OmittedVars: 3}}},
		"a refusal": {Refuse: &wire.Refusal{Reason: "gone", Final: true}},
		"an ack":    {Ack: &wire.Ack{CallUID: "u"}},
		"a ping":    {Ping: &wire.Ping{}},
		"a pong":    {Pong: &wire.Ping{}},
	} {
		var buffer bytes.Buffer
		if err := wire.Write(&buffer, sent); err != nil {
			t.Fatal(err)
		}
		buffer.WriteString("the next frame")
		got, err := wire.Read(&buffer, wire.MaxAssignment)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(sent, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if buffer.String() != "the next frame" {
			t.Errorf("%s: more or less was read than the frame: %.20q is left", name, buffer.String())
		}
	}
}

func TestBadFramesAreErrors(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func() io.Reader{
		"nothing":           func() io.Reader { return strings.NewReader("") },
		"half a length":     func() io.Reader { return strings.NewReader("\x00\x00") },
		"half a body":       func() io.Reader { return strings.NewReader("\x00\x00\x00\x09{}") },
		"no body":           func() io.Reader { return frame("") },
		"not JSON":          func() io.Reader { return frame("hello") },
		"no message":        func() io.Reader { return frame("{}") },
		"null":              func() io.Reader { return frame("null") },
		"two messages":      func() io.Reader { return frame(`{"ping":{},"hello":{}}`) },
		"a wrong type":      func() io.Reader { return frame(`{"hello":[]}`) },
		"an unknown one":    func() io.Reader { return frame(`{"exec":{}}`) },
		"an array":          func() io.Reader { return frame(`[]`) },
		"trailing garbage":  func() io.Reader { return frame(`{"ping":{}} x`) },
		"announced too big": func() io.Reader { return strings.NewReader("\xff\xff\xff\xff") },
		"one byte over":     func() io.Reader { return frame(strings.Repeat(" ", wire.MaxHello) + " ") },
	} {
		if m, err := wire.Read(open(), wire.MaxHello); err == nil {
			t.Errorf("%s: got %+v", name, m)
		}
		if m, err := readFromRunner(open(), wire.MaxHello); err == nil {
			t.Errorf("%s, from a runner: got %+v", name, m)
		}
	}
}

func TestAFrameOverTheBoundIsRefusedBeforeItsBody(t *testing.T) {
	t.Parallel()
	r := strings.NewReader("\x00\x00\x04\x01body")
	if _, err := wire.ReadHeader(r, 1024); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if r.Len() != len("body") {
		t.Error("a part of the body was read")
	}
	if size, err := wire.ReadHeader(strings.NewReader("\x00\x00\x04\x00"), 1024); err != nil || size != 1024 {
		t.Errorf("a frame at the bound: %d, %v", size, err)
	}
}

func TestAMessageOfALaterVersionIsToldFromABrokenOne(t *testing.T) {
	t.Parallel()
	stream := io.MultiReader(frame(`{"stream":{"bytes":"aGk="}}`), frame(`{"pong":{"load":0.5},"trace":"x"}`))
	if _, err := wire.Read(stream, wire.MaxControl); !errors.Is(err, wire.ErrUnknownMessage) {
		t.Errorf("got %v", err)
	}
	if m, err := wire.Read(stream, wire.MaxControl); err != nil || m.Pong == nil {
		t.Errorf("the message after it: %+v, %v; unknown fields must be ignored", m, err)
	}
	if _, err := wire.Read(frame(`{"pong":`), wire.MaxControl); err == nil || errors.Is(err, wire.ErrUnknownMessage) {
		t.Errorf("a broken frame: %v", err)
	}
}

func TestWhatOnlyOperatorsSendIsNotDecodedFromARunner(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"assign": `{"assign":{"callUID":"u"}}`, "refuse": `{"refuse":{}}`, "ack": `{"ack":{}}`,
		"begin": `{"begin":{}}`, "stop": `{"stop":{}}`, "end": `{"end":{}}`, "pong": `{"pong":{}}`,
	} {
		if _, err := readFromRunner(frame(body), wire.MaxResult); !errors.Is(err, wire.ErrUnknownMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, body := range []string{`{"hello":{"version":1}}`, `{"held":{"uid":"u"}}`, `{"result":{"callUID":"u"}}`, `{"ping":{}}`} {
		if _, err := readFromRunner(frame(body), wire.MaxResult); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x0b{\"ping\":{}}"))
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Add([]byte("\x00\x00\x00\x36{\"hello\":{\"serving\":{\"kind\":\"ToolCall\",\"uid\":\"u\"}}}    "))
	f.Add([]byte("\x00\x00\x00\x30{\"result\":{\"environment\":{\"vars\":[{}],\"stripped\":[]}}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := wire.Read(bytes.NewReader(data), wire.MaxControl)
		if (m == nil) == (err == nil) {
			t.Fatalf("message %v and error %v", m, err)
		}
		// The operator reads the same of what a runner may send, and nothing else.
		mine, err := readFromRunner(bytes.NewReader(data), wire.MaxControl)
		if (mine == nil) == (err == nil) {
			t.Fatalf("from a runner: message %v and error %v", mine, err)
		}
		if m != nil && (m.Hello != nil || m.Result != nil || m.Ping != nil) {
			if diff := cmp.Diff(m, mine, ownMemory); diff != "" {
				t.Error(diff)
			}
		}
	})
}
