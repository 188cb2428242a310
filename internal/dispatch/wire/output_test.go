package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
)

// largestData is the largest frame of data.
func largestData() *wire.Data {
	const most = 1<<63 - 1
	return &wire.Data{
		ID: 1<<64 - 1, Offset: most - wire.MaxPayload, Bytes: wire.MaxPayload, Payload: bytes.Repeat([]byte{'\n', 0, 255, '{'}, wire.MaxPayload/4),
		End: true, Total: most, Complete: true, SHA256: strings.Repeat("a", 64), MissingStart: most - wire.MaxPayload - 1, MissingEnd: most - wire.MaxPayload,
	}
}

func TestMessagesAboutOutputComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sent       *wire.Message
		fromRunner bool
	}{
		"a read": {&wire.Message{Read: &wire.ReadOutput{
			ID: 1<<64 - 1, CallUID: strings.Repeat("u", 128), Stream: wire.Stderr, Offset: 1<<63 - 1, Max: wire.MaxRead, Follow: true,
		}}, false},
		"a read of a file": {&wire.Message{Read: &wire.ReadOutput{
			ID: 1<<64 - 1, CallUID: strings.Repeat("u", 128), Artifact: strings.Repeat("\"", result.MaxArtifactPath/2), Offset: 1<<63 - 1, Max: wire.MaxRead,
		}}, false},
		"a cancel":      {&wire.Message{CancelRead: &wire.CancelRead{ID: 3}}, false},
		"data":          {&wire.Message{Data: &wire.Data{ID: 1, Offset: 2, Bytes: 3, Payload: []byte("\n{}"), Total: 5}}, true},
		"no data":       {&wire.Message{Data: &wire.Data{ID: 1, End: true, Unknown: true}}, true},
		"the most data": {&wire.Message{Data: largestData()}, true},
	} {
		frame, err := wire.Encode(c.sent)
		if err != nil {
			t.Fatal(name, err)
		}
		if got, err := wire.Read(bytes.NewReader(frame), wire.MaxData); err != nil || !cmp.Equal(got, c.sent) {
			t.Errorf("%s: %v, %s", name, err, cmp.Diff(c.sent, got))
		}
		got, err := readFromRunner(bytes.NewReader(frame), wire.MaxData)
		if c.fromRunner && !cmp.Equal(got, c.sent) || !c.fromRunner && !errors.Is(err, wire.ErrUnknownMessage) {
			t.Errorf("%s, from a runner: %v, %s", name, err, cmp.Diff(c.sent, got))
		}
		if c.sent.Data != nil {
			if err := c.sent.Data.Check(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if len(frame) > wire.MaxControl {
			t.Errorf("%s takes %d bytes", name, len(frame))
		}
	}
}

func TestDataComesWithWhatItSaysAndNothingElseDoes(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"less than it says":        `{"data":{"bytes":3}}` + "\nab",
		"more than it says":        `{"data":{"bytes":1}}` + "\nab",
		"nothing":                  `{"data":{"bytes":1}}`,
		"less than none":           `{"data":{"bytes":-1}}` + "\n",
		"what it doesn't announce": `{"data":{}}` + "\nab",
		"another message too":      `{"data":{},"ping":{}}` + "\n",
		"after another message":    `{"ping":{}}` + "\nab",
		"after one in other words": `{ "data":{"bytes":2}}` + "\nab",
		"a payload in JSON":        `{"data":{"bytes":2,"Payload":"YWI="}}` + "\n",
	} {
		if m, err := readFromRunner(frame(body), wire.MaxData); err == nil {
			t.Errorf("data with %s: got %+v", name, m)
		}
	}
}

func TestDataThatNoRunnerCanMeasureIsFound(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*wire.Data){
		"too much":                 func(d *wire.Data) { d.Payload = append(d.Payload, 0) },
		"nothing in the middle":    func(d *wire.Data) { d.Payload, d.End = nil, false },
		"before the start":         func(d *wire.Data) { d.Offset = -1 },
		"of less than nothing":     func(d *wire.Data) { d.Total, d.Payload = -1, nil },
		"behind the end":           func(d *wire.Data) { d.Total-- },
		"at an offset that wraps":  func(d *wire.Data) { d.Offset++ },
		"missing before the start": func(d *wire.Data) { d.MissingStart = -1 },
		"missing backwards":        func(d *wire.Data) { d.MissingStart = d.MissingEnd + 1 },
		"missing behind the end":   func(d *wire.Data) { d.Total, d.Payload, d.Offset = 10, nil, 0 },
		"a short hash":             func(d *wire.Data) { d.SHA256 = "ab" },
		"a hash that isn't one":    func(d *wire.Data) { d.SHA256 = strings.Repeat("x", 64) },
		"a hash before the end":    func(d *wire.Data) { d.Complete = false },
		"of no stream":             func(d *wire.Data) { d.Unknown = true },
		"of no stream, to go on":   func(d *wire.Data) { d.Unknown, d.End, d.Payload = true, false, nil },
	} {
		d := largestData()
		change(d)
		if d.Check() == nil {
			t.Errorf("%s: passes", name)
		}
	}
}

func TestAReadIsOfAStreamAndBounded(t *testing.T) {
	t.Parallel()
	fine := wire.ReadOutput{CallUID: "u", Stream: wire.Stdout, Max: wire.MaxRead}
	if err := fine.Check(); err != nil {
		t.Error(err)
	}
	file := wire.ReadOutput{CallUID: "u", Artifact: "out/plot.png"}
	if err := file.Check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*wire.ReadOutput){
		"a stream and a file": func(r *wire.ReadOutput) { r.Artifact = "a" },
		"a file without an end": func(r *wire.ReadOutput) {
			r.Stream, r.Artifact = "", strings.Repeat("x", result.MaxArtifactPath+1)
		},
		"no call":          func(r *wire.ReadOutput) { r.CallUID = "" },
		"no stream":        func(r *wire.ReadOutput) { r.Stream = "stdin" },
		"before the start": func(r *wire.ReadOutput) { r.Offset = -1 },
		"less than none":   func(r *wire.ReadOutput) { r.Max = -1 },
		"too much":         func(r *wire.ReadOutput) { r.Max++ },
	} {
		r := fine
		change(&r)
		if r.Check() == nil {
			t.Errorf("%s: passes", name)
		}
	}
}

// Whatever a runner sends, what is read of it is within the frame, and comes back the same when it is sent on.
func FuzzData(f *testing.F) {
	f.Add([]byte(`{"data":{"id":1,"offset":2,"bytes":3,"total":9,"end":true}}` + "\nabc"))
	f.Add([]byte(`{"data":{"missingStart":1,"missingEnd":2,"total":9,"bytes":0}}`))
	f.Add([]byte(`{"data":{"sha256":"00","complete":true,"bytes":0,"unknown":true}}` + "\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		raw := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
		m, err := readFromRunner(bytes.NewReader(raw), wire.MaxData)
		if err != nil || m.Data == nil {
			return
		}
		if m.Data.Bytes != len(m.Data.Payload) || len(m.Data.Payload) > len(body) {
			t.Fatalf("%d bytes, and %d are there", m.Data.Bytes, len(m.Data.Payload))
		}
		if m.Data.Check() != nil {
			return
		}
		if end := m.Data.Offset + int64(len(m.Data.Payload)); len(m.Data.Payload) > 0 && (end < m.Data.Offset || end > m.Data.Total) {
			t.Fatalf("up to %d of %d", end, m.Data.Total)
		}
		again, err := wire.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readFromRunner(bytes.NewReader(again), wire.MaxData); err != nil || !cmp.Equal(m, got, ownMemory) {
			t.Errorf("%v, %s", err, cmp.Diff(m, got, ownMemory))
		}
	})
}
