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
)

func frame(body string) io.Reader {
	head := make([]byte, 4)
	binary.BigEndian.PutUint32(head, uint32(len(body)))
	return io.MultiReader(bytes.NewReader(head), strings.NewReader(body))
}

func TestAMessageComesBackAsItWas(t *testing.T) {
	t.Parallel()
	sent := &wire.Message{Assign: &wire.Assignment{
		CallUID: "u", Argv: []string{"a b", "\"", "\n", "é"}, Source: []byte{0, 255}, HasSource: true,
		Stdin: []byte("x"), TimeoutMilliseconds: 1, MaxBytesPerStream: 2, DenyNetwork: true,
		Environment: envresolve.Plan{Blocklist: []string{"A_"}, Trusted: true},
	}}
	var buffer bytes.Buffer
	if err := wire.Write(&buffer, sent); err != nil {
		t.Fatal(err)
	}
	got, err := wire.Read(&buffer, wire.MaxFrame)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sent, got); diff != "" {
		t.Error(diff)
	}
}

func TestBadFramesAreErrors(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]io.Reader{
		"nothing":           strings.NewReader(""),
		"half a length":     strings.NewReader("\x00\x00"),
		"half a body":       strings.NewReader("\x00\x00\x00\x09{}"),
		"not JSON":          frame("hello"),
		"no message":        frame("{}"),
		"two messages":      frame(`{"ping":{},"pong":{}}`),
		"a wrong type":      frame(`{"hello":[]}`),
		"an unknown one":    frame(`{"exec":{}}`),
		"an array":          frame(`[]`),
		"trailing garbage":  frame(`{"ping":{}} x`),
		"announced too big": strings.NewReader("\xff\xff\xff\xff"),
	} {
		if m, err := wire.Read(r, wire.MaxHello); err == nil {
			t.Errorf("%s: got %+v", name, m)
		}
	}
	if _, err := wire.Read(strings.NewReader("\xff\xff\xff\xff"), wire.MaxHello); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("a frame over the bound: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x0b{\"ping\":{}}"))
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := wire.Read(bytes.NewReader(data), wire.MaxHello)
		if (m == nil) == (err == nil) {
			t.Fatalf("message %v and error %v", m, err)
		}
	})
}

func TestLastWordsAreBelievedOnlyWithTheToken(t *testing.T) {
	t.Parallel()
	outcome := []byte(`{"reason":"Completed","text":"a<b>&c"}`)
	words := wire.NewLastWords("token", "call", outcome)
	if !words.Check("token", "call") {
		t.Error("the runner's own words are not believed")
	}
	for name, check := range map[string]bool{
		"another token":   words.Check("other", "call"),
		"another call":    words.Check("token", "other"),
		"another outcome": (&wire.LastWords{Outcome: []byte(`{"reason":"Failed"}`), Code: words.Code}).Check("token", "call"),
		"no code":         (&wire.LastWords{Outcome: outcome}).Check("token", "call"),
	} {
		if check {
			t.Errorf("%s: believed", name)
		}
	}
	encoded := words.Encode()
	if !bytes.Contains(encoded, outcome) || len(encoded) > len(outcome)+wire.LastWordsOverhead {
		t.Errorf("encoded as %s", encoded)
	}
}

func TestInternalVariablesAreTheRunnersOwn(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{wire.EnvToken: true, wire.EnvRefPrefix + "0": true, "TOOLCALL_X": false, "PATH": false} {
		if wire.Internal(name) != want {
			t.Errorf("Internal(%s) is %v", name, !want)
		}
	}
}
