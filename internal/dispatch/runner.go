package dispatch

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// Runner is one runner's connection. A runner of a ToolSession, which Begin makes of one that waits, has no Call of its
// own; what is said of its calls is in toolsession.go.
type Runner struct {
	hello   wire.Hello
	keyHash string
	send    func(*wire.Message) error
	close   func()
	// changed is called, without the lock, when the runner has got or lost a call of a name.
	changed func(*Runner, types.NamespacedName)
	// hasRoom says whether another call can be sent before the runner has read more.
	hasRoom func() bool
	// keepDecision returns as much of a decision as there is memory for, all or nothing.
	keepDecision func(string) (kept string, release func())
	// reads are what the runner is asked of output.
	reads *reads
	// transfers are those of files.
	transfers *transfers

	// mu is also held while a session is begun or ended, or a call of it is assigned, until that is queued: what is true here must be
	// known to the runner before what follows from it is sent. It is taken after the Hub's, and before the outbox's.
	mu       sync.Mutex
	call     string
	callUID  string
	canceled bool
	acked    bool
	recorded bool
	result   *heldResult
	// over says that the connection has ended, or is no longer the runner's: nothing is taken or sent any more.
	over bool
	// served is the session that the runner serves; nil when it serves none.
	served *served
}

// heldResult is a result that nobody has acknowledged.
type heldResult struct {
	call   types.NamespacedName
	result *wire.Result
	size   int
	// inSession says that it is a result of a session's call.
	inSession bool
	// release gives back the memory that the result takes of the budget.
	release func()
}

// Hello is what the runner said when it connected.
func (s *Runner) Hello() wire.Hello { return s.hello }

// KeyHash identifies the runner's process: the SHA-256 of its public key, in hexadecimal.
func (s *Runner) KeyHash() string { return s.keyHash }

// Call is the name of the call that the runner was made for or given, or what it says itself; empty for one that waits.
func (s *Runner) Call() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.call
}

// CallUID is the call that the runner has, on this or an earlier connection; empty when it waits for one.
func (s *Runner) CallUID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.callUID
}

// objectName is an object of a name in the runner's namespace.
func (s *Runner) objectName(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.hello.Namespace, Name: name}
}

// names are the calls that the runner was made for or has, and the session that it serves, if any.
func (s *Runner) names() (calls, sessions []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.call != "" {
		calls = append(calls, s.objectName(s.call))
	}
	if s.served == nil {
		return calls, nil
	}
	for _, call := range s.served.calls {
		calls = append(calls, s.objectName(call.Name))
	}
	return calls, []types.NamespacedName{s.objectName(s.served.Name)}
}

// inServed looks at the session that the runner serves, nil when it serves none, or changes it.
func inServed[T any](s *Runner, look func(*served) T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return look(s.served)
}

// claim is what the runner says that it is, or was made since.
func (s *Runner) claim() *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &claim{
		namespace: s.hello.Namespace, job: s.hello.Job, jobUID: s.hello.JobUID,
		call: s.call, callUID: s.callUID, keyHash: s.keyHash,
	}
	if s.served != nil {
		c.session, c.sessionUID = s.served.Name, s.served.UID
	}
	return c
}

// wasAcknowledged says that the runner was told that its result is recorded.
func (s *Runner) wasAcknowledged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked
}

// Result is what the runner reported, or nil. It takes a part of the budget of all results until Release.
func (s *Runner) Result() *wire.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.result == nil {
		return nil
	}
	return s.result.result
}

// mayReport says whether a result can come now: the runner has a call, and none of its results is held.
func (s *Runner) mayReport() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served != nil {
		return s.served.mayReport()
	}
	return s.callUID != "" && s.result == nil
}

// ResultOf is what the runner reported about a call, or nil. It takes a part of the budget of all results until Ack.
func (s *Runner) ResultOf(callUID string) *wire.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.result
	if call := s.served.get(callUID); call != nil {
		held = call.result
	}
	if held == nil || held.result.CallUID != callUID {
		return nil
	}
	return held.result
}

// Assign gives the call to the runner, unless it has one already. The caller has recorded durably that this
// runner, by its KeyHash, is the one that runs the call.
func (s *Runner) Assign(a *wire.Assignment) error {
	s.mu.Lock()
	if s.served != nil {
		s.mu.Unlock()
		return errInSession
	}
	if s.callUID != "" {
		s.mu.Unlock()
		return nil
	}
	before := s.call
	s.call, s.callUID = a.CallName, a.CallUID
	s.mu.Unlock()
	s.changed(s, s.objectName(before))
	s.changed(s, s.objectName(a.CallName))
	return s.sendOrClose(&wire.Message{Assign: a})
}

// Cancel asks the runner, once a connection, to stop the call.
func (s *Runner) Cancel(callUID string) error {
	s.mu.Lock()
	again, served := s.canceled, s.served != nil
	s.canceled = true
	s.mu.Unlock()
	if served {
		return errInSession
	}
	if again {
		return nil
	}
	return s.sendOrClose(&wire.Message{Cancel: &wire.Cancel{CallUID: callUID}})
}

// Release forgets the result, so that another one can be received. Ack and Refuse do it. Doing it twice is fine.
func (s *Runner) Release() {
	s.mu.Lock()
	taken := s.take()
	s.mu.Unlock()
	for _, r := range taken {
		r.release()
	}
}

// Record is Release where the runner is still needed: its result is recorded, and isn't acknowledged yet.
func (s *Runner) Record() {
	s.mu.Lock()
	s.recorded = true
	s.mu.Unlock()
	s.Release()
}

// IsRecorded says that Record was called.
func (s *Runner) IsRecorded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recorded
}

// end has the connection take and send nothing more, and takes away what nobody acknowledged. calls are those that a
// session's runner has then; it has no others, unless it connects again.
func (s *Runner) end() (left []*heldResult, calls []HeldCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	left = s.take()
	if s.served == nil {
		return left, nil
	}
	s.served.markAll()
	for _, call := range s.served.calls {
		call.release()
	}
	return left, s.served.list()
}

// take takes away what was reported, with its part of the budget. It needs the lock.
func (s *Runner) take() []*heldResult {
	var taken []*heldResult
	if s.result != nil {
		taken, s.result = append(taken, s.result), nil
	}
	if s.served == nil {
		return taken
	}
	for _, call := range s.served.calls {
		if call.result != nil {
			taken, call.result = append(taken, call.result), nil
		}
	}
	return taken
}

// Ack tells the runner that a call's result is recorded. One that has a single call exits then. A session's result that is
// still on its way is acknowledged when it arrives.
func (s *Runner) Ack(callUID string) error {
	s.mu.Lock()
	if s.served == nil {
		s.acked = true
		s.mu.Unlock()
		s.Release()
		return s.sendOrClose(&wire.Message{Ack: &wire.Ack{CallUID: callUID}})
	}
	dropped, err := s.served.ack(callUID)
	s.mu.Unlock()
	if dropped == nil {
		return err
	}
	s.changed(s, s.objectName(dropped.Name))
	if dropped.State == Known {
		// The runner has nothing to drop.
		return nil
	}
	return s.sendOrClose(&wire.Message{Ack: &wire.Ack{CallUID: callUID}})
}

// Refuse tells the runner to give up the call that it has, if any, and to exit. One that was acknowledged exits anyway. A
// session's runner ends its session.
func (s *Runner) Refuse(reason string) {
	s.Release()
	_ = s.End(v1alpha1.ReasonSessionEnded)
	s.mu.Lock()
	acked, callUID := s.acked, s.callUID
	s.mu.Unlock()
	if acked {
		return
	}
	_ = s.sendOrClose(&wire.Message{Refuse: &wire.Refusal{Reason: reason, CallUID: callUID}})
	s.close()
}

// sendOrClose closes a connection that can't be written to: the runner will dial again.
func (s *Runner) sendOrClose(m *wire.Message) error {
	if err := s.send(m); err != nil {
		s.close()
		return err
	}
	return nil
}

func (s *Runner) setResult(r *wire.Result, size int, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		release()
		return
	}
	s.result = &heldResult{call: s.objectName(s.call), result: r, size: size, release: release}
}
