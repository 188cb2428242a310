package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/spec"
)

// largestPart is the largest frame of a part, largestState that of a state.
func largestPart() *wire.Part {
	const most = 1<<63 - 1
	return &wire.Part{ID: 1<<64 - 1, Offset: most - wire.MaxPart, Bytes: wire.MaxPart, Payload: bytes.Repeat([]byte{'\n', 0, 255, '{'}, wire.MaxPart/4), End: true}
}

func largestState() *wire.TransferState {
	const most = 1<<63 - 1
	return &wire.TransferState{
		ID: 1<<64 - 1, Size: most, SHA256: strings.Repeat("a", 64), Next: most, Created: true, Ended: true,
		Reason: strings.Repeat("r", 64), Message: strings.Repeat("\x01", wire.MaxMessageBytes),
	}
}

func goodTransfer() *wire.Transfer {
	sum := strings.Repeat("a", 64)
	return &wire.Transfer{ID: 1, Kind: wire.TransferWrite, Path: "file", IfSHA256: &sum, Rules: spec.FileRules{ReadPaths: []string{"/workspace"}, MaxWriteBytes: 7}}
}

// ownMemory leaves out whose memory a part is in.
var ownMemory = cmpopts.IgnoreUnexported(wire.Part{})

func TestMessagesAboutFilesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sent       *wire.Message
		fromRunner bool
	}{
		"a transfer":      {&wire.Message{Transfer: goodTransfer()}, false},
		"a want":          {&wire.Message{Want: &wire.Want{ID: 1<<64 - 1, Offset: 1<<63 - 1, Max: wire.MaxPart}}, false},
		"a cancel":        {&wire.Message{CancelTransfer: &wire.CancelTransfer{ID: 3}}, false},
		"a part":          {&wire.Message{Part: &wire.Part{ID: 1, Offset: 2, Bytes: 3, Payload: []byte("\n{}")}}, true},
		"an empty end":    {&wire.Message{Part: &wire.Part{ID: 1, End: true}}, true},
		"the most bytes":  {&wire.Message{Part: largestPart()}, true},
		"the first state": {&wire.Message{State: &wire.TransferState{ID: 1}}, true},
		"the most states": {&wire.Message{State: largestState()}, true},
	} {
		frame, err := wire.Encode(c.sent)
		if err != nil {
			t.Fatal(name, err)
		}
		if got, err := wire.Read(bytes.NewReader(frame), wire.MaxPartFrame); err != nil || !cmp.Equal(got, c.sent, ownMemory) {
			t.Errorf("%s: %v, %s", name, err, cmp.Diff(c.sent, got, ownMemory))
		}
		got, err := readFromRunner(bytes.NewReader(frame), wire.MaxPartFrame)
		if c.fromRunner && !cmp.Equal(got, c.sent, ownMemory) || !c.fromRunner && !errors.Is(err, wire.ErrUnknownMessage) {
			t.Errorf("%s, from a runner: %v, %s", name, err, cmp.Diff(c.sent, got, ownMemory))
		}
		for _, check := range []interface{ Check() error }{c.sent.Transfer, c.sent.Want, c.sent.Part, c.sent.State} {
			if !isNil(check) && check.Check() != nil {
				t.Errorf("%s: %v", name, check.Check())
			}
		}
	}
}

func isNil(check interface{ Check() error }) bool {
	switch m := check.(type) {
	case *wire.Transfer:
		return m == nil
	case *wire.Want:
		return m == nil
	case *wire.Part:
		return m == nil
	case *wire.TransferState:
		return m == nil
	default:
		return true
	}
}

func TestAPartComesWithWhatItSaysAndNothingElseDoes(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"less than it says":        `{"part":{"bytes":3}}` + "\nab",
		"more than it says":        `{"part":{"bytes":1}}` + "\nab",
		"nothing":                  `{"part":{"bytes":1}}`,
		"less than none":           `{"part":{"bytes":-1}}` + "\n",
		"what it doesn't announce": `{"part":{}}` + "\nab",
		"data too":                 `{"part":{"bytes":2},"data":{"bytes":2}}` + "\nab",
		"after one in other words": `{ "part":{"bytes":2}}` + "\nab",
		"a payload in JSON":        `{"part":{"bytes":2,"Payload":"YWI="}}` + "\n",
	} {
		if m, err := readFromRunner(frame(body), wire.MaxPartFrame); err == nil {
			t.Errorf("a part with %s: got %+v", name, m)
		}
	}
}

func TestWhatNobodySaysOfFilesIsFound(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*wire.Transfer){
		"of no kind":        func(m *wire.Transfer) { m.Kind = "read" },
		"without a path":    func(m *wire.Transfer) { m.Path = "" },
		"of a long path":    func(m *wire.Transfer) { m.Path = strings.Repeat("x", 4097) },
		"of a limit below":  func(m *wire.Transfer) { m.Rules.MaxReadBytes = -1 },
		"of another limit":  func(m *wire.Transfer) { m.Rules.MaxWriteBytes = -1 },
		"of a bad checksum": func(m *wire.Transfer) { bad := "x"; m.IfSHA256 = &bad },
		"of no call":        func(m *wire.Transfer) { m.Kind = wire.TransferInput },
		"of a bad offset":   func(m *wire.Transfer) { m.Kind, m.CallUID, m.Offset = wire.TransferInput, "uid", -1 },
	} {
		m := goodTransfer()
		if change(m); m.Check() == nil {
			t.Errorf("a transfer %s is taken", name)
		}
	}
	for _, w := range []wire.Want{{Offset: -1, Max: 1}, {Max: 0}, {Max: -1}, {Max: wire.MaxPart + 1}} {
		if w.Check() == nil {
			t.Errorf("%+v is taken", w)
		}
	}
	for name, change := range map[string]func(*wire.Part){
		"too much":                func(p *wire.Part) { p.Payload = append(p.Payload, 0) },
		"nothing in the middle":   func(p *wire.Part) { p.Payload, p.End = nil, false },
		"before the start":        func(p *wire.Part) { p.Offset = -1 },
		"at an offset that wraps": func(p *wire.Part) { p.Offset++ },
	} {
		p := largestPart()
		if change(p); p.Check() == nil {
			t.Errorf("a part %s is taken", name)
		}
	}
	for name, change := range map[string]func(*wire.TransferState){
		"of less than nothing":     func(s *wire.TransferState) { s.Size = -1 },
		"of less than that":        func(s *wire.TransferState) { s.Next = -1 },
		"of a bad checksum":        func(s *wire.TransferState) { s.SHA256 = "ab" },
		"that hasn't ended":        func(s *wire.TransferState) { s.Ended = false },
		"of a message alone":       func(s *wire.TransferState) { s.Reason = "" },
		"of a long reason":         func(s *wire.TransferState) { s.Reason += "r" },
		"of a reason with a break": func(s *wire.TransferState) { s.Reason = "a\nb" },
		"of a long message":        func(s *wire.TransferState) { s.Message += "m" },
	} {
		s := largestState()
		if change(s); s.Check() == nil {
			t.Errorf("a state %s is taken", name)
		}
	}
}

func FuzzTransfer(f *testing.F) {
	f.Add([]byte(`{"part":{"id":1,"offset":2,"bytes":3,"end":true}}` + "\nabc"))
	f.Add([]byte(`{"state":{"id":1,"size":2,"next":3,"ended":true,"reason":"NoSpace","message":"m"}}`))
	f.Add([]byte(`{"state":{"sha256":"00"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		raw := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
		m, err := readFromRunner(bytes.NewReader(raw), wire.MaxPartFrame)
		if err != nil || m.Part == nil && m.State == nil {
			return
		}
		if m.Part != nil {
			if m.Part.Bytes != len(m.Part.Payload) || len(m.Part.Payload) > len(body) {
				t.Fatalf("%d bytes, and %d are there", m.Part.Bytes, len(m.Part.Payload))
			}
			if m.Part.Check() != nil {
				return
			}
		} else if m.State.Check() != nil {
			return
		}
		again, err := wire.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readFromRunner(bytes.NewReader(again), wire.MaxPartFrame); err != nil || !cmp.Equal(m, got, ownMemory) {
			t.Errorf("%v, %s", err, cmp.Diff(m, got, ownMemory))
		}
	})
}

// The memory of a part that was released is used again, and that of others isn't.
func TestOnlyReleasedMemoryIsUsedAgain(t *testing.T) {
	t.Parallel()
	receive := func(fill byte) *wire.Part {
		payload := bytes.Repeat([]byte{fill}, wire.MaxPart)
		frame, err := wire.Encode(&wire.Message{Part: &wire.Part{ID: 1, Bytes: len(payload), Payload: payload}})
		if err != nil {
			t.Fatal(err)
		}
		in := bytes.NewReader(frame)
		size, err := wire.ReadHeader(in, wire.MaxPartFrame)
		if err != nil {
			t.Fatal(err)
		}
		m, err := wire.ReadAskedFromRunner(in, size)
		if err != nil {
			t.Fatal(err)
		}
		return m.Part
	}
	kept := receive('k')
	for fill := range byte(100) {
		p := receive(fill)
		if p.Payload[0] != fill || p.Payload[wire.MaxPart-1] != fill {
			t.Fatalf("part %d has the bytes of another one", fill)
		}
		p.Release()
		p.Release()
		if p.Payload != nil {
			t.Fatal("a released part can still be read")
		}
	}
	if !bytes.Equal(kept.Payload, bytes.Repeat([]byte{'k'}, wire.MaxPart)) {
		t.Error("a part that wasn't released has changed")
	}
}

// Memory of an earlier frame changes nothing in the next one.
func TestEncodingIntoUsedMemory(t *testing.T) {
	t.Parallel()
	var memory []byte
	for _, m := range []*wire.Message{
		{Part: largestPart()}, {Want: &wire.Want{ID: 1, Max: 1}}, {Part: largestPart()}, {State: largestState()}, {State: &wire.TransferState{ID: 1}},
	} {
		want, err := wire.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if memory, err = wire.EncodeInto(memory, m); err != nil || !bytes.Equal(memory, want) {
			t.Errorf("%v: another frame than in memory of its own", err)
		}
	}
}
