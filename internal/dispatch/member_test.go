package dispatch_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
)

// member is a runner of an owner, one process over its connections, that says what a test has it say. It reads all that it is
// sent.
type member struct {
	t       *testing.T
	n       *network
	o       *operator
	process *process
	job     string
	// madeFor is the call that its pod was made for; empty for one that takes what comes.
	madeFor string
	owner   wire.Owner
	*line
	session *dispatch.Runner
}

// line is one connection of a member.
type line struct {
	*peer
	mu    sync.Mutex
	heard []*wire.Message
	ended bool
}

// newMember is a runner that waits.
func newMember(t *testing.T, n *network, o *operator) *member {
	t.Helper()
	m := absent(t, n, o)
	m.dial(nil)
	m.session = o.event(t)
	return m
}

// absent is a runner that hasn't connected yet. It is that of session "s1".
func absent(t *testing.T, n *network, o *operator) *member {
	t.Helper()
	return &member{t: t, n: n, o: o, process: newProcess(t), job: "job", owner: theSession}
}

// newServing is a runner of session "s1".
func newServing(t *testing.T, n *network, o *operator) *member {
	t.Helper()
	m := newMember(t, n, o)
	m.begin()
	return m
}

// callC1 is the owner of a runner that takes call "c1" alone.
var callC1 = wire.BeginCall("c1", "call-c1").Owner

// forEachOwner runs a test with a runner of call "c1", and with one of a session.
func forEachOwner(t *testing.T, test func(t *testing.T, o *operator, m *member)) {
	t.Helper()
	for name, owner := range map[string]wire.Owner{"the runner of a call": callC1, "the runner of a session": theSession} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, dispatch.Limits{}, func(t *testing.T, n *network, o *operator) {
				m := newMember(t, n, o)
				m.owner = owner
				m.begin()
				test(t, o, m)
			})
		})
	}
}

func theBegin() *wire.Begin { return beginOf(theSession) }

func beginOf(owner wire.Owner) *wire.Begin {
	if owner.IsCall() {
		return wire.BeginCall(owner.UID, owner.Name)
	}
	return &wire.Begin{Owner: owner, MaxCalls: 1000, MaxConcurrentCalls: 16}
}

func (m *member) begin() {
	m.t.Helper()
	if err := m.session.Begin(beginOf(m.owner)); err != nil {
		m.t.Fatal(err)
	}
	if got := m.hears(); got != "begin" {
		m.t.Fatalf("heard %q", got)
	}
}

// dial says hello, for the owner if the runner has begun.
func (m *member) dial(serving *wire.Serving) {
	m.t.Helper()
	m.line = &line{peer: m.process.connect(m.t, m.n)}
	go m.line.read()
	m.line.send(changedHello(m.t, m.o, func(h *wire.Hello) {
		h.Call, h.Job, h.JobUID, h.Serving = m.madeFor, m.job, m.job+"-uid", serving
	}))
}

// connect says hello for the owner, with calls that the runner holds.
func (m *member) connect(held ...wire.Held) {
	m.t.Helper()
	m.dialServing(held...)
	m.session = m.o.event(m.t)
}

func (m *member) dialServing(held ...wire.Held) {
	m.t.Helper()
	m.dial(&wire.Serving{Owner: m.owner, Taken: len(held), Held: len(held)})
	for i := range held {
		m.say(&wire.Message{Held: &held[i]})
	}
}

// disconnect ends the connection, and waits until the hub has noticed.
func (m *member) disconnect() {
	m.t.Helper()
	m.Close()
	synctest.Wait()
	m.o.news()
}

// say sends a message, and waits until the operator has handled it.
func (m *member) say(message *wire.Message) {
	m.t.Helper()
	raw, err := json.Marshal(message)
	if err != nil {
		m.t.Fatal(err)
	}
	_ = m.write(string(raw))
	synctest.Wait()
}

func (m *member) report(uid, decision string) {
	m.t.Helper()
	m.say(&wire.Message{Result: resultIn(uid, decision)})
}

// resultIn is a result of a call, with what was decided about it.
func resultIn(uid, decision string) *wire.Result {
	return &wire.Result{CallUID: uid, Decision: decision, Outcome: result.Outcome{Reason: result.Completed, Started: true, ExitCode: result.Exit(0)}}
}

// assign hands call uid to the runner.
func (m *member) assign(uid string) error { return m.session.Assign(m.owner.UID, assignmentOf(uid)) }

func (m *member) mustAssign(uids ...string) {
	m.t.Helper()
	for _, uid := range uids {
		if err := m.assign(uid); err != nil {
			m.t.Fatal(err)
		}
	}
}

func assignmentOf(uid string) *wire.Assignment {
	return &wire.Assignment{CallUID: uid, CallName: "call-" + uid, Argv: []string{"true"}, Decision: "sealed-" + uid}
}

func held(uid string, state wire.CallState) wire.Held {
	return wire.Held{UID: uid, Name: "call-" + uid, State: state, Decision: "sealed-" + uid}
}

func (l *line) read() {
	for {
		m, err := l.receive()
		l.mu.Lock()
		if err != nil {
			l.ended = true
			l.mu.Unlock()
			return
		}
		l.heard = append(l.heard, m)
		l.mu.Unlock()
	}
}

// hears is what the operator said since it was last asked.
func (l *line) hears() string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	var said []string
	for _, m := range l.heard {
		switch {
		case m.Begin != nil:
			said = append(said, "begin")
		case m.Assign != nil:
			said = append(said, "assign "+m.Assign.CallUID)
		case m.Stop != nil:
			said = append(said, fmt.Sprintf("stop %s %s", m.Stop.CallUID, m.Stop.Reason))
		case m.Ack != nil:
			said = append(said, "ack "+m.Ack.CallUID)
		case m.End != nil:
			said = append(said, "end "+m.End.Reason)
		case m.Refuse != nil && m.Refuse.Final:
			said = append(said, "refuse for good")
		case m.Refuse != nil:
			said = append(said, "refuse")
		case m.Pong == nil:
			said = append(said, "something else")
		}
	}
	l.heard = nil
	return strings.Join(said, ", ")
}

// isOver says that the operator has ended the connection.
func (l *line) isOver() bool {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// states are the calls that the operator has of the runner.
func states(calls []dispatch.HeldCall) string {
	var list []string
	for _, call := range calls {
		list = append(list, call.UID+" "+string(call.State))
	}
	return strings.Join(list, ", ")
}

// news is what the hub told since it was last asked: "owner" and names of calls.
func (o *operator) news() string {
	synctest.Wait()
	var told []string
	for len(o.events) > 0 {
		told = append(told, inOrder((<-o.events).news)...)
	}
	return strings.Join(told, ", ")
}

// inOrder is news as text.
func inOrder(n dispatch.News) (told []string) {
	if n.Owner {
		told = append(told, "owner")
	}
	return slices.Concat(told, slices.Sorted(slices.Values(n.Ended)), slices.Sorted(slices.Values(n.Calls)))
}

// inBubble runs a test with an operator on a network in memory.
func inBubble(t *testing.T, limits dispatch.Limits, f func(*testing.T, *network, *operator)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n, o := bubble(t, limits)
		f(t, n, o)
	})
}
