package controllers_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
)

// process is a model of the process in a session's pod. It obeys the protocol as internal/supervisor does, on a real
// connection, but handles one message and sends one message only when it is told to, so that a test can lose either.
type process struct {
	w      *world
	pod    *corev1.Pod
	job    string
	config *dial.Config
	ledger *ledger
	// acked looks at an acknowledgement before it counts, started at each start of a command; nil for no check.
	acked   func(p *process, uid string)
	started func(*process, *processCall)
	note    func(format string, args ...any)

	conn    *dial.Conn
	session *dispatch.Session
	inbox   *inbox
	// unsent are the messages that the operator will get.
	unsent []*wire.Message

	begun *wire.Begin
	// ended says that no call is started any more; calls that are refused end for the reason why.
	ended bool
	why   string
	calls []*processCall
	// taken are the UIDs of all calls that the process was given, or was told never to start: those are true.
	taken map[string]bool
	gone  bool
}

// processCall is a call that runs, or whose result isn't acknowledged.
type processCall struct {
	wire.Held
	// begins says that the command is about to start, stopped why it is to end; output is what it writes.
	begins  bool
	stopped string
	output  string
	at      time.Time
	result  *wire.Result
}

// ledger has every start of a command, by the UID of the call.
type ledger struct{ starts map[string][]start }

// start is one start of a command.
type start struct {
	job, output string
	incarnation int32
	background  bool
}

func newLedger() *ledger { return &ledger{starts: map[string][]start{}} }

func (w *world) process(config *dial.Config, pod *corev1.Pod, l *ledger) *process {
	return &process{w: w, pod: pod, job: config.Hello.Job, config: config, ledger: l, taken: map[string]bool{}}
}

// tell notes a message.
func (p *process) tell(format string, m *wire.Message) {
	if p.note == nil {
		return
	}
	raw, _ := json.Marshal(m)
	kind, _, _ := strings.Cut(strings.TrimPrefix(string(raw), `{"`), `"`)
	p.note(fmt.Sprintf(format, "%s", kind+" %s"), p.job, raw[:min(len(raw), 120)])
}

func (p *process) answer(m *wire.Message) {
	if m != nil {
		p.unsent = append(p.unsent, m)
	}
}

// handle does what the operator says.
func (p *process) handle(m *wire.Message) {
	p.tell("%s hears %s", m)
	switch {
	case m.Begin != nil && p.begun == nil:
		p.begun = m.Begin
	case m.Begin != nil && m.Begin.SessionUID != p.begun.SessionUID:
		p.w.t.Errorf("%s serves %+v, and is made to serve %+v", p.job, p.begun, m.Begin)
	case m.Refuse != nil && p.begun == nil:
		p.exit(corev1.PodFailed)
	case m.Refuse != nil:
		p.disconnect()
	case m.Assign != nil:
		p.assign(m.Assign)
	case m.Stop != nil:
		p.stop(m.Stop)
	case m.Ack != nil:
		if p.acked != nil {
			p.acked(p, m.Ack.CallUID)
		}
		p.calls = slices.DeleteFunc(p.calls, func(c *processCall) bool { return c.UID == m.Ack.CallUID && c.result != nil })
	case m.End != nil:
		p.end(result.SessionEnded, result.CancelRequested)
	}
	p.exitIfOver()
}

func (p *process) find(uid string) *processCall {
	for _, c := range p.calls {
		if c.UID == uid {
			return c
		}
	}
	return nil
}

func (p *process) assign(a *wire.Assignment) {
	stopped, taken := p.taken[a.CallUID]
	switch c := p.find(a.CallUID); {
	case c != nil:
		p.answer(c.answer())
		return
	case stopped:
		p.answer(neverStarted(a.CallUID, a.Decision, result.CancelRequested))
		return
	case taken:
		p.answer(&wire.Message{Known: &wire.Known{CallUID: a.CallUID}})
		return
	}
	if err := a.CheckSession(); err != nil {
		p.w.t.Errorf("%s: %v", p.job, err)
	}
	if !p.hasRoom(a.Background) {
		p.w.t.Errorf("%s is assigned call %s over its room", p.job, a.CallName)
		p.disconnect()
		return
	}
	c := &processCall{Held: wire.Held{UID: a.CallUID, Name: a.CallName, State: wire.Running, Decision: a.Decision, Background: a.Background}}
	p.calls = append(p.calls, c)
	full := len(p.taken) >= p.begun.MaxCalls
	p.taken[a.CallUID] = false
	switch {
	case p.ended:
		p.answer(c.finish(neverStarted(a.CallUID, "", p.why).Result))
	case full:
		p.answer(c.finish(neverStarted(a.CallUID, "", result.SessionEnded).Result))
	default:
		c.begins = true
	}
}

func (p *process) hasRoom(background bool) bool {
	limit := p.begun.MaxConcurrentCalls
	if background {
		limit = wire.MaxBackgroundCalls
	}
	for _, c := range p.calls {
		if c.result == nil && c.Background == background {
			limit--
		}
	}
	return limit > 0 && len(p.calls) < wire.MaxHeldCalls
}

func (p *process) stop(m *wire.Stop) {
	stopped, taken := p.taken[m.CallUID]
	switch c := p.find(m.CallUID); {
	case c != nil && c.result == nil:
		c.stopped = m.Reason
	case c != nil:
		p.answer(c.answer())
	case taken && !stopped:
		p.answer(&wire.Message{Known: &wire.Known{CallUID: m.CallUID}})
	default:
		if len(p.taken) < p.begun.MaxCalls {
			p.taken[m.CallUID] = true
		}
		p.answer(neverStarted(m.CallUID, "", m.Reason))
	}
}

func neverStarted(uid, decision, reason string) *wire.Message {
	return &wire.Message{Result: &wire.Result{CallUID: uid, Decision: decision, Outcome: result.Outcome{Reason: reason, Message: "it was not started"}}}
}

func (p *process) end(why, running string) {
	if !p.ended {
		p.ended, p.why = true, why
	}
	for _, c := range p.calls {
		if c.result == nil && c.stopped == "" {
			c.stopped = running
		}
	}
}

func (c *processCall) answer() *wire.Message {
	switch {
	case c.result != nil:
		return &wire.Message{Result: c.result}
	case !c.at.IsZero():
		return &wire.Message{Started: &wire.Started{CallUID: c.UID, StartedMicroseconds: c.at.UnixMicro()}}
	default:
		return nil
	}
}

func (c *processCall) finish(r *wire.Result) *wire.Message {
	r.Decision = c.Decision
	c.result, c.State = r, wire.Ended
	return c.answer()
}

// running are the calls without a result.
func (p *process) running() (calls []*processCall) {
	for _, c := range p.calls {
		if c.result == nil && !p.gone {
			calls = append(calls, c)
		}
	}
	return calls
}

// work starts a command, or ends one that runs.
func (p *process) work(c *processCall) {
	switch {
	case c.begins && c.stopped != "":
		p.answer(c.finish(neverStarted(c.UID, "", c.stopped).Result))
	case c.begins:
		c.begins, c.at = false, p.w.clock.Now()
		c.output = fmt.Sprintf("%s %d\n", p.job, len(p.ledger.starts[c.UID]))
		p.ledger.start(p, c)
		p.answer(c.answer())
	default:
		p.answer(c.finish(&wire.Result{CallUID: c.UID, Outcome: c.outcome(p.w.clock.Now())}))
	}
}

// outcome is that of a command which was started.
func (c *processCall) outcome(now time.Time) result.Outcome {
	o := result.Outcome{
		Reason: result.Completed, Started: true, ExitCode: result.Exit(0), StartTime: c.at, CompletionTime: now, DurationMS: now.Sub(c.at).Milliseconds(),
		Stdout: result.Stream{Head: []byte(c.output), Bytes: int64(len(c.output)), SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(c.output)))},
		Stderr: completed.Stderr,
	}
	if c.stopped != "" {
		o.Reason, o.ExitCode, o.Message = c.stopped, nil, "the command was stopped"
	}
	return o
}

func (l *ledger) start(p *process, c *processCall) {
	l.starts[c.UID] = append(l.starts[c.UID], start{job: p.job, output: c.output, incarnation: p.begun.Incarnation, background: c.Background})
	if len(l.starts[c.UID]) > 1 {
		p.w.t.Errorf("the command of call %s is started again: %+v", c.Name, l.starts[c.UID])
	}
	if p.started != nil {
		p.started(p, c)
	}
}

// exitIfOver ends the process when its session has ended and all its results are acknowledged.
func (p *process) exitIfOver() {
	if p.ended && len(p.calls) == 0 && !p.gone {
		p.exit(corev1.PodSucceeded)
	}
}

// exit ends the process, as the kubelet reports it.
func (p *process) exit(phase corev1.PodPhase) {
	p.kill()
	p.w.podStatus(p.pod, func(s *corev1.PodStatus) { s.Phase = phase })
}

// kill ends the process, and nobody says so.
func (p *process) kill() {
	p.gone = true
	p.disconnect()
}
