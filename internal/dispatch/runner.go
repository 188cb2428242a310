package dispatch

import (
	"context"
	"sync"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// Runner is one runner's connection. What is said of its calls is in calls.go.
type Runner struct {
	hello   wire.Hello
	keyHash string
	// order is that in which the connections came.
	order  uint64
	hub    *Hub
	outbox *outbox
	send   func(*wire.Message) error
	// results are the memory for what the runner sends.
	results resultBudgets
	// cancel ends the connection.
	cancel context.CancelFunc
	// reads are what the runner is asked of output.
	reads *reads
	// transfers are those of files.
	transfers *transfers
	// gone is closed when the connection has ended, and isn't found any more: nothing of reads and transfers comes then.
	gone chan struct{}

	// mu is also held while something is begun or ended, or a call is assigned, until that is queued: what is true here must be
	// known to the runner before what follows from it is sent. It is taken after the Hub's, and before the outbox's.
	mu sync.Mutex
	// over says that the connection has ended, or is no longer the runner's: nothing is taken or sent any more. refused says that this is so
	// because the runner was told to exit.
	over, refused bool
	// served is what the runner has begun with, and the calls that it has of that.
	served served
}

// Hello is what the runner said when it connected.
func (s *Runner) Hello() wire.Hello { return s.hello }

// KeyHash identifies the runner's process: the SHA-256 of its public key, in hexadecimal.
func (s *Runner) KeyHash() string { return s.keyHash }

// Owner is the object that the runner was begun for; false while it waits.
func (s *Runner) Owner() (wire.Owner, bool) {
	owner := inServed(s, func(v *served) wire.Owner { return v.Owner })
	return owner, owner.Kind != ""
}

// IsWaiting says that the runner hasn't begun.
func (s *Runner) IsWaiting() bool {
	_, hasBegun := s.Owner()
	return !hasBegun
}

// IsRefused says that the runner was told to exit. Its connection ends in a moment.
func (s *Runner) IsRefused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// MayServe says that there is a runner, which waits or was begun for the object that has a UID. Where two objects have recorded one
// pod, it is that of the object for which its runner was begun.
func (s *Runner) MayServe(ownerUID string) bool {
	if s == nil {
		return false
	}
	owner, hasBegun := s.Owner()
	return !hasBegun || owner.UID == ownerUID
}

// displaces says that the runner takes the place of another one of its Job.
func (s *Runner) displaces(old *Runner) bool {
	return old.keyHash == s.keyHash || !s.IsWaiting() && old.IsWaiting()
}

// object is a call or a session in the runner's namespace.
func (s *Runner) object(kind wire.OwnerKind, name string) objectName {
	return objectName{kind, s.hello.Namespace, name}
}

// objects are the owner of the runner and the calls that it has, or else the call that it was made for, if any.
func (s *Runner) objects() (list []objectName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.served.hasBegun():
		list = append(list, s.object(s.served.Kind, s.served.Name))
	case s.hello.Call != "":
		list = append(list, s.object(wire.KindCall, s.hello.Call))
	}
	for _, call := range s.served.calls {
		list = append(list, s.object(wire.KindCall, call.Name))
	}
	return list
}

// inServed looks at what the runner has begun with, or changes it.
func inServed[T any](s *Runner, look func(*served) T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return look(&s.served)
}

// hasOther says that the runner has, or was begun for, a call of a name with another UID. Of one whose connection has ended, the results
// count alone.
func (s *Runner) hasOther(name, uid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := &s.served; !s.over && v.IsCall() && v.Name == name && v.UID != uid {
		return true
	}
	for _, call := range s.served.calls {
		if call.Name == name && call.UID != uid && (!s.over || call.result != nil) {
			return true
		}
	}
	return false
}

// noticeRoom has the session looked at when a call waits for the runner to read.
func (s *Runner) noticeRoom() {
	if inServed(s, func(v *served) (was bool) { was, v.isAwaited = v.isAwaited, false; return was }) {
		s.hub.notify(s, News{Owner: true})
	}
}

// hasExited says that the runner had one call, whose result was acknowledged.
func (s *Runner) hasExited() bool { return inServed(s, (*served).isDone) }

// news is that of a runner that comes or goes: about all that it has.
func (s *Runner) news() News { return inServed(s, (*served).news) }

// end has the connection take and send nothing more. What the runner has then stays known: it has no other calls, unless it connects
// again.
func (s *Runner) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, call := range s.served.calls {
		call.dropDecision()
	}
}

// endRequests ends the reads and the transfers that haven't ended, and drops what came for them, whose memory a remembered Runner would
// keep.
func endRequests(s *Runner) {
	close(s.gone)
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.reads.pending)
	clear(s.transfers.open)
}

// continueFrom takes over what was known of the runner when its last connection ended. It returns the names of calls that the runner had
// then and has no more: it never started them.
func (s *Runner) continueFrom(last *Runner) (lost []string) {
	last.mu.Lock()
	defer last.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served.continueFrom(&last.served)
}

// releaseResult drops the result of a call, unless it came on this connection, which is there: that is acknowledged.
func (s *Runner) releaseResult(callUID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call := s.served.calls[callUID]; call != nil && (s.over || !call.hasReported) {
		call.dropResult()
		call.discard = call.discard || s.over
	}
}

// releaseResults drops all results.
func (s *Runner) releaseResults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, call := range s.served.calls {
		call.dropResult()
	}
}

// Refuse tells the runner to give up all that it has, and to exit. Nothing that it says afterwards counts. A runner of a call
// that was acknowledged exits anyway.
func (s *Runner) Refuse(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.served.isDone() {
		return
	}
	s.over, s.refused = true, true
	for _, call := range s.served.calls {
		call.release()
		call.discard = true
	}
	_ = s.send(&wire.Message{Refuse: &wire.Refusal{Reason: reason, Final: true}})
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

// close ends the connection. What was sent before still leaves.
func (s *Runner) close() {
	s.outbox.close()
	s.cancel()
}
