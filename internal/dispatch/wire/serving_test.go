package wire_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// owners are the two kinds.
var owners = map[string]wire.Owner{
	"a call":    {Kind: wire.KindCall, UID: "u", Name: "n"},
	"a session": {Kind: wire.KindSession, UID: "s", Name: "n", Incarnation: 1},
}

// largestHello is one of a session's runner that holds as many calls as it may.
func largestHello() *wire.Hello {
	name, uid := strings.Repeat("x", 253), strings.Repeat("u", 128)
	h := &wire.Hello{
		Version: wire.Version, Namespace: name, Call: name, Pool: name, Job: name, JobUID: uid, Pod: name, PodUID: uid, Node: name,
		Token: strings.Repeat("x", 43), Serving: &wire.Serving{
			Owner: wire.Owner{Kind: wire.KindSession, UID: uid, Name: name, Incarnation: 1 << 30}, Taken: wire.MaxSessionCalls, Held: wire.MaxHeldCalls,
		},
	}
	for range wire.MaxHeldCalls {
		h.Serving.Calls = append(h.Serving.Calls, wire.Held{
			UID: uid, Name: name, State: wire.Running, Decision: strings.Repeat("d", wire.MaxDecision),
		})
	}
	return h
}

// helloOfACall is one of a call's runner.
func helloOfACall() *wire.Hello {
	return &wire.Hello{
		Version: wire.Version, Namespace: "ns", Job: "job", JobUID: "job-uid", Pod: "pod", PodUID: "pod-uid", Token: "token",
		Serving: &wire.Serving{Owner: owners["a call"], Taken: 1, Held: 1, Calls: []wire.Held{{UID: "u", Name: "n", State: wire.Ended}}},
	}
}

// readHello reads what a runner wrote, as an operator does.
func readHello(t *testing.T, from *bytes.Buffer) (*wire.Hello, error) {
	t.Helper()
	m, err := readFromRunner(from, wire.MaxHello)
	if err != nil {
		t.Fatal(err)
	}
	if m.Hello.Serving == nil {
		return m.Hello, nil
	}
	for s := m.Hello.Serving; len(s.Calls) < s.Held; {
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

func TestAHelloComesBackAsItWas(t *testing.T) {
	t.Parallel()
	waiting := helloOfACall()
	waiting.Serving = nil
	for name, sent := range map[string]*wire.Hello{"the largest session": largestHello(), "a call": helloOfACall(), "one that waits": waiting} {
		var stream bytes.Buffer
		if err := wire.Write(&stream, &wire.Message{Hello: sent}); err != nil {
			t.Fatal(err)
		}
		if sent.Serving != nil {
			for i := range sent.Serving.Calls {
				for _, m := range []*wire.Message{{Held: &sent.Serving.Calls[i]}, {Ping: &wire.Ping{}}} {
					if err := wire.Write(&stream, m); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		got, err := readHello(t, &stream)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := readFromRunner(&stream, wire.MaxControl); sent.Serving != nil && (err != nil || m.Ping == nil || stream.Len() != 0) {
			t.Errorf("%s: after the calls come %+v, %v, and %d bytes", name, m, err, stream.Len())
		}
		if diff := cmp.Diff(sent, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Operators and runners of one version understand each other: these names can't change without another Version.
func TestTheNamesOfFieldsAreThoseOfTheVersion(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]*wire.Message{
		`{"hello":{"version":1,"namespace":"ns","job":"job","jobUID":"job-uid","pod":"pod","podUID":"pod-uid","node":"","token":"token","serving":{"kind":"ToolCall","uid":"u","name":"n","taken":1,"held":1}}}`: {Hello: helloOfACall()},
		`{"begin":{"kind":"ToolCall","uid":"u","name":"n","maxCalls":1,"maxConcurrentCalls":1}}`:                                                                                                                 {Begin: wire.BeginCall("u", "n")},
		`{"begin":{"kind":"ToolSession","uid":"s","name":"n","incarnation":1,"maxCalls":3,"maxConcurrentCalls":2,"home":"/h"}}`:                                                                                  {Begin: &wire.Begin{Owner: owners["a session"], MaxCalls: 3, MaxConcurrentCalls: 2, Home: "/h"}},
		`{"held":{"uid":"u","name":"n","state":"Ended"}}`:     {Held: &wire.Held{UID: "u", Name: "n", State: wire.Ended}},
		`{"refuse":{"reason":"gone","final":true}}`:           {Refuse: &wire.Refusal{Reason: "gone", Final: true}},
		`{"stop":{"callUID":"u","reason":"CancelRequested"}}`: {Stop: &wire.Stop{CallUID: "u", Reason: "CancelRequested"}},
	} {
		frame, err := wire.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(frame[4:])); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestMessagesOfCallsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sent       *wire.Message
		fromRunner bool
	}{
		"begin":  {&wire.Message{Begin: &wire.Begin{Owner: owners["a session"], MaxCalls: 3, MaxConcurrentCalls: 4, Home: "/home"}}, false},
		"a call": {&wire.Message{Begin: wire.BeginCall("u", "n")}, false},
		"assign": {&wire.Message{Assign: &wire.Assignment{CallUID: "u", Decision: "sealed", Background: true}}, false},
		"stop":   {&wire.Message{Stop: &wire.Stop{CallUID: "u", Reason: "CancelRequested"}}, false},
		"ack":    {&wire.Message{Ack: &wire.Ack{CallUID: "u"}}, false},
		"held":   {&wire.Message{Held: &wire.Held{UID: "u", Name: "n", State: wire.Ended, Decision: "sealed", Background: true}}, true},
		"end":    {&wire.Message{End: &wire.End{Reason: "IdleTimeout"}}, false},
		"known":  {&wire.Message{Known: &wire.Known{CallUID: "u"}}, true},
		"result": {&wire.Message{Result: &wire.Result{CallUID: "u", Decision: "sealed"}}, true},
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

func TestARunnerTakesOnlyWhatItCanSayBack(t *testing.T) {
	t.Parallel()
	fine := wire.Assignment{CallUID: "u", CallName: "c", Decision: strings.Repeat("d", wire.MaxDecision)}
	if err := fine.Check(); err != nil {
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
		if a.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestARunnerBeginsWhatCanBeBegun(t *testing.T) {
	t.Parallel()
	call, session := "a call", "a session"
	begins := map[string]wire.Begin{call: *wire.BeginCall("u", "n"), session: {Owner: owners[session], MaxCalls: 1, MaxConcurrentCalls: 1, Home: "/home"}}
	for name, b := range begins {
		if err := b.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	most := begins[session]
	most.MaxCalls, most.MaxConcurrentCalls = wire.MaxSessionCalls, wire.MaxConcurrentCalls
	if err := most.Check(); err != nil {
		t.Errorf("the most calls of a session: %v", err)
	}
	for name, c := range map[string]struct {
		change func(*wire.Begin)
		of     []string
	}{
		"no UID":              {func(b *wire.Begin) { b.UID = "" }, []string{call, session}},
		"a long UID":          {func(b *wire.Begin) { b.UID = strings.Repeat("u", 129) }, []string{call, session}},
		"a UID to escape":     {func(b *wire.Begin) { b.UID = `"` }, []string{call, session}},
		"a name that is long": {func(b *wire.Begin) { b.Name = strings.Repeat("n", 254) }, []string{call, session}},
		"no kind":             {func(b *wire.Begin) { b.Kind = "" }, []string{call, session}},
		"another kind":        {func(b *wire.Begin) { b.Kind = "Pod" }, []string{call, session}},
		"no calls":            {func(b *wire.Begin) { b.MaxCalls = 0 }, []string{call, session}},
		"too many calls":      {func(b *wire.Begin) { b.MaxCalls = wire.MaxSessionCalls + 1 }, []string{call, session}},
		"none at a time":      {func(b *wire.Begin) { b.MaxConcurrentCalls = 0 }, []string{call, session}},
		"too many at a time":  {func(b *wire.Begin) { b.MaxConcurrentCalls = wire.MaxConcurrentCalls + 1 }, []string{call, session}},
		"no incarnation":      {func(b *wire.Begin) { b.Incarnation = 0 }, []string{session}},
		"less than the first": {func(b *wire.Begin) { b.Incarnation = -1 }, []string{call, session}},
		"an incarnation":      {func(b *wire.Begin) { b.Incarnation = 1 }, []string{call}},
		"two calls":           {func(b *wire.Begin) { b.MaxCalls = 2 }, []string{call}},
		"two calls at a time": {func(b *wire.Begin) { b.MaxConcurrentCalls = 2 }, []string{call}},
		"a home of its own":   {func(b *wire.Begin) { b.Home = "/home" }, []string{call}},
	} {
		for _, of := range c.of {
			b := begins[of]
			if c.change(&b); b.Check() == nil {
				t.Errorf("%s, of %s: accepted", name, of)
			}
		}
	}
}
