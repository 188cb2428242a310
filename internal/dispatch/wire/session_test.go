package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// largestHello is one of a session's runner that holds as many calls as it may.
func largestHello() *wire.Hello {
	name, uid := strings.Repeat("x", 253), strings.Repeat("u", 128)
	h := &wire.Hello{
		Version: wire.Version, Namespace: name, Call: name, Pool: name, Job: name, JobUID: uid, Pod: name, PodUID: uid, Node: name,
		Token: strings.Repeat("x", 43), Session: &wire.Session{UID: uid, Name: name, Incarnation: 1 << 30, Taken: wire.MaxSessionCalls, Held: wire.MaxHeldCalls},
	}
	for range wire.MaxHeldCalls {
		h.Session.Calls = append(h.Session.Calls, wire.Held{
			UID: uid, Name: name, State: wire.Running, Decision: strings.Repeat("d", wire.MaxDecision),
		})
	}
	return h
}

// readHello reads what WriteHello wrote, as an operator does.
func readHello(t *testing.T, from *bytes.Buffer) (*wire.Hello, error) {
	t.Helper()
	m, err := readFromRunner(from, wire.MaxHello)
	if err != nil {
		t.Fatal(err)
	}
	if m.Hello.Session == nil {
		return m.Hello, nil
	}
	for s := m.Hello.Session; len(s.Calls) < s.Held; {
		m, err := readFromRunner(from, wire.MaxHeld)
		if err != nil {
			return nil, err
		}
		if m.Held != nil {
			s.Calls = append(s.Calls, *m.Held)
		}
	}
	return m.Hello, nil
}

func TestAHelloOfTheLargestSessionComesBackAsItWas(t *testing.T) {
	t.Parallel()
	sent := largestHello()
	var stream bytes.Buffer
	if err := wire.Write(&stream, &wire.Message{Hello: sent}); err != nil {
		t.Fatal(err)
	}
	for i := range sent.Session.Calls {
		for _, m := range []*wire.Message{{Held: &sent.Session.Calls[i]}, {Ping: &wire.Ping{}}} {
			if err := wire.Write(&stream, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := readHello(t, &stream)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := readFromRunner(&stream, wire.MaxControl); err != nil || m.Ping == nil || stream.Len() != 0 {
		t.Errorf("after the calls come %+v, %v, and %d bytes", m, err, stream.Len())
	}
	if diff := cmp.Diff(sent, got); diff != "" {
		t.Error(diff)
	}
}

func TestAHelloWithoutASessionIsTheOneOfBefore(t *testing.T) {
	t.Parallel()
	h := &wire.Hello{Version: 4, Namespace: "ns", Call: "call", Job: "job", JobUID: "job-uid", Pod: "pod", PodUID: "pod-uid", Node: "node", Token: "TOKEN"}
	var stream bytes.Buffer
	if err := wire.Write(&stream, &wire.Message{Hello: h}); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(strings.TrimSpace(recorded(t, "hello-waiting")), `"version":1`, `"version":4`, 1)
	var a, b any
	if json.Unmarshal([]byte(want), &a) != nil || json.Unmarshal(stream.Bytes()[4:], &b) != nil || !cmp.Equal(a, b) {
		t.Errorf("got %s, want %s", stream.Bytes()[4:], want)
	}
}

func TestMessagesOfSessionsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sent       *wire.Message
		fromRunner bool
	}{
		"begin":   {&wire.Message{Begin: &wire.Begin{SessionUID: "s", SessionName: "n", Incarnation: 2, MaxCalls: 3, MaxConcurrentCalls: 4}}, false},
		"assign":  {&wire.Message{Assign: &wire.Assignment{CallUID: "u", Decision: "sealed", Background: true}}, false},
		"stop":    {&wire.Message{Stop: &wire.Stop{CallUID: "u", Reason: "CancelRequested"}}, false},
		"end":     {&wire.Message{End: &wire.End{Reason: "IdleTimeout"}}, false},
		"started": {&wire.Message{Started: &wire.Started{CallUID: "u", StartedMicroseconds: 1}}, true},
		"known":   {&wire.Message{Known: &wire.Known{CallUID: "u"}}, true},
		"result":  {&wire.Message{Result: &wire.Result{CallUID: "u", Decision: "sealed"}}, true},
	} {
		frame, err := wire.Encode(c.sent)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := wire.Read(bytes.NewReader(frame), wire.MaxAssignment); err != nil || !cmp.Equal(got, c.sent) {
			t.Errorf("%s: %v, %s", name, err, cmp.Diff(c.sent, got))
		}
		got, err := readFromRunner(bytes.NewReader(frame), wire.MaxAssignment)
		if c.fromRunner && !cmp.Equal(got, c.sent) || !c.fromRunner && !errors.Is(err, wire.ErrUnknownMessage) {
			t.Errorf("%s, from a runner: %v, %s", name, err, cmp.Diff(c.sent, got))
		}
	}
}

func TestTheLargestResultOfASessionFits(t *testing.T) {
	t.Parallel()
	r := largestResult()
	r.Decision = strings.Repeat("d", wire.MaxDecision)
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
	if _, err := wire.Encode(&wire.Message{Result: r}); err != nil {
		t.Error(err)
	}
	for _, decision := range []string{r.Decision + "d", "a\"b", "a\nb"} {
		r.Decision = decision
		if r.Validate() == nil {
			t.Errorf("the decision %.10q is legal", decision)
		}
	}
}

func TestASessionsRunnerTakesOnlyWhatItCanSayBack(t *testing.T) {
	t.Parallel()
	fine := wire.Assignment{CallUID: "u", CallName: "c", Decision: strings.Repeat("d", wire.MaxDecision)}
	if err := fine.CheckSession(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*wire.Assignment){
		"no UID":              func(a *wire.Assignment) { a.CallUID = "" },
		"a long UID":          func(a *wire.Assignment) { a.CallUID = strings.Repeat("u", 129) },
		"a long name":         func(a *wire.Assignment) { a.CallName = strings.Repeat("n", 254) },
		"a name to escape":    func(a *wire.Assignment) { a.CallName = "\x01" },
		"a large decision":    func(a *wire.Assignment) { a.Decision += "d" },
		"an escaped decision": func(a *wire.Assignment) { a.Decision = `"` },
	} {
		a := fine
		change(&a)
		if a.CheckSession() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	b := wire.Begin{SessionUID: "s", SessionName: "n", MaxCalls: 1, MaxConcurrentCalls: 1}
	if err := b.Check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*wire.Begin){
		"no UID":              func(b *wire.Begin) { b.SessionUID = "" },
		"no calls":            func(b *wire.Begin) { b.MaxCalls = 0 },
		"too many calls":      func(b *wire.Begin) { b.MaxCalls = wire.MaxSessionCalls + 1 },
		"none at a time":      func(b *wire.Begin) { b.MaxConcurrentCalls = 0 },
		"too many at a time":  func(b *wire.Begin) { b.MaxConcurrentCalls = wire.MaxConcurrentCalls + 1 },
		"a name that is long": func(b *wire.Begin) { b.SessionName = strings.Repeat("n", 254) },
	} {
		b := b
		change(&b)
		if b.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
