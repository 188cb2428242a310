package dispatch

import (
	"sync"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// Session is one runner's connection.
type Session struct {
	hello   wire.Hello
	keyHash string
	send    func(*wire.Message) error
	close   func()
	// changed is called, without the lock, when the runner has got or lost a call of a name.
	changed func(*Session, callName)

	mu       sync.Mutex
	call     string
	callUID  string
	canceled bool
	acked    bool
	result   *heldResult
	// over says that the connection has ended, or is no longer the runner's: nothing is taken or sent any more.
	over bool
}

// heldResult is a result that nobody has acknowledged.
type heldResult struct {
	call   callName
	result *wire.Result
	size   int
	// release gives back the memory that the result takes of the budget.
	release func()
}

// Hello is what the runner said when it connected.
func (s *Session) Hello() wire.Hello { return s.hello }

// KeyHash identifies the runner's process: the SHA-256 of its public key, in hexadecimal.
func (s *Session) KeyHash() string { return s.keyHash }

// Call is the name of the call that the runner was made for or given, or what it says itself; empty for one that waits.
func (s *Session) Call() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.call
}

// CallUID is the call that the runner has, on this or an earlier connection; empty when it waits for one.
func (s *Session) CallUID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.callUID
}

// callNames are the calls that the runner was made for or has.
func (s *Session) callNames() []callName {
	if call := s.Call(); call != "" {
		return []callName{{s.hello.Namespace, call}}
	}
	return nil
}

// claim is what the runner says that it is, or was made since.
func (s *Session) claim() *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &claim{
		namespace: s.hello.Namespace, job: s.hello.Job, jobUID: s.hello.JobUID,
		call: s.call, callUID: s.callUID, keyHash: s.keyHash,
	}
}

// wasAcknowledged says that the runner was told that its result is recorded.
func (s *Session) wasAcknowledged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked
}

// Result is what the runner reported, or nil. It takes a part of the budget of all results until Release.
func (s *Session) Result() *wire.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.result == nil {
		return nil
	}
	return s.result.result
}

// Assign gives the call to the runner, unless it has one already. The caller has recorded durably that this
// runner, by its KeyHash, is the one that runs the call.
func (s *Session) Assign(a *wire.Assignment) error {
	s.mu.Lock()
	if s.callUID != "" {
		s.mu.Unlock()
		return nil
	}
	before := s.call
	s.call, s.callUID = a.CallName, a.CallUID
	s.mu.Unlock()
	s.changed(s, callName{s.hello.Namespace, before})
	s.changed(s, callName{s.hello.Namespace, a.CallName})
	return s.sendOrClose(&wire.Message{Assign: a})
}

// Cancel asks the runner, once a connection, to stop the call.
func (s *Session) Cancel(callUID string) error {
	s.mu.Lock()
	again := s.canceled
	s.canceled = true
	s.mu.Unlock()
	if again {
		return nil
	}
	return s.sendOrClose(&wire.Message{Cancel: &wire.Cancel{CallUID: callUID}})
}

// Release forgets the result, so that another one can be received. Ack and Refuse do it. Doing it twice is fine.
func (s *Session) Release() {
	for _, r := range s.takeResults() {
		r.release()
	}
}

// end has the session take and send nothing more, and takes away what nobody acknowledged.
func (s *Session) end() []*heldResult {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	return s.takeResults()
}

// takeResults takes away what was reported, with its part of the budget.
func (s *Session) takeResults() []*heldResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.result == nil {
		return nil
	}
	taken := []*heldResult{s.result}
	s.result = nil
	return taken
}

// Ack tells the runner that its result is recorded; it exits then.
func (s *Session) Ack(callUID string) error {
	s.mu.Lock()
	s.acked = true
	s.mu.Unlock()
	s.Release()
	return s.sendOrClose(&wire.Message{Ack: &wire.Ack{CallUID: callUID}})
}

// Refuse tells the runner to give up the call that it has, if any, and to exit. One that was acknowledged exits anyway.
func (s *Session) Refuse(reason string) {
	s.Release()
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
func (s *Session) sendOrClose(m *wire.Message) error {
	if err := s.send(m); err != nil {
		s.close()
		return err
	}
	return nil
}

func (s *Session) setResult(r *wire.Result, size int, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		release()
		return
	}
	s.result = &heldResult{callName{s.hello.Namespace, s.call}, r, size, release}
}
