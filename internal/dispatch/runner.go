package dispatch

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// Runner is one runner's connection. What is said of its calls is in calls.go.
type Runner struct {
	hello   wire.Hello
	keyHash string
	// order is that in which the connections came.
	order uint64
	send  func(*wire.Message) error
	close func()
	// changed is called, without the lock, when the runner has got or lost a call of a name.
	changed func(*Runner, types.NamespacedName)
	// now tells the time by the Hub's clock.
	now func() time.Time
	// hasRoom says whether another call can be sent before the runner has read more.
	hasRoom func() bool
	// keepDecision returns as much of a decision as there is memory for, all or nothing.
	keepDecision func(string) (kept string, release func())
	// reads are what the runner is asked of output.
	reads *reads
	// transfers are those of files.
	transfers *transfers

	// mu is also held while something is begun or ended, or a call is assigned, until that is queued: what is true here must be
	// known to the runner before what follows from it is sent. It is taken after the Hub's, and before the outbox's.
	mu sync.Mutex
	// over says that the connection has ended, or is no longer the runner's: nothing is taken or sent any more.
	over bool
	// served is what the runner has begun with, and the calls that it has of that; nil while it waits.
	served *served
}

// heldResult is a result that nobody has acknowledged.
type heldResult struct {
	call   types.NamespacedName
	result *wire.Result
	size   int
	// release gives back the memory that the result takes of the budget.
	release func()
}

// Hello is what the runner said when it connected.
func (s *Runner) Hello() wire.Hello { return s.hello }

// KeyHash identifies the runner's process: the SHA-256 of its public key, in hexadecimal.
func (s *Runner) KeyHash() string { return s.keyHash }

// Owner is the object that the runner was begun for; false while it waits.
func (s *Runner) Owner() (wire.Owner, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served == nil {
		return wire.Owner{}, false
	}
	return s.served.Owner, true
}

// IsWaiting says that the runner hasn't begun.
func (s *Runner) IsWaiting() bool {
	_, hasBegun := s.Owner()
	return !hasBegun
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
	if old.keyHash == s.keyHash {
		return s.order >= old.order
	}
	return !s.IsWaiting() && old.IsWaiting()
}

// objectName is an object of a name in the runner's namespace.
func (s *Runner) objectName(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.hello.Namespace, Name: name}
}

// names are the calls that the runner has, or was made for, and the session that it serves, if any.
func (s *Runner) names() (calls, sessions []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served == nil {
		if s.hello.Call != "" {
			calls = append(calls, s.objectName(s.hello.Call))
		}
		return calls, nil
	}
	for _, call := range s.served.calls {
		calls = append(calls, s.objectName(call.Name))
	}
	if owner := s.objectName(s.served.Name); s.served.IsSession() {
		sessions = append(sessions, owner)
	} else {
		calls = append(calls, owner)
	}
	return calls, sessions
}

// inServed looks at what the runner has begun with, nil while it waits, or changes it.
func inServed[T any](s *Runner, look func(*served) T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return look(s.served)
}

// claim is what the runner says that it is, or was made since.
func (s *Runner) claim() *claim {
	c := &claim{namespace: s.hello.Namespace, job: s.hello.Job, jobUID: s.hello.JobUID, keyHash: s.keyHash}
	c.owner, _ = s.Owner()
	return c
}

// hasExited says that the runner had one call, whose result was acknowledged.
func (s *Runner) hasExited() bool { return inServed(s, (*served).isDone) }

// mayReport says whether a result can come now: the runner has a call that it hasn't reported.
func (s *Runner) mayReport() bool { return inServed(s, (*served).mayReport) }

// end has the connection take and send nothing more, and takes away what nobody acknowledged. calls are those that the runner
// has then; it has no others, unless it connects again.
func (s *Runner) end() (left []*heldResult, calls []HeldCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.served == nil {
		return nil, nil
	}
	s.served.markAll()
	for _, call := range s.served.calls {
		if call.result != nil {
			left, call.result = append(left, call.result), nil
		}
		call.release()
	}
	return left, s.served.list()
}

// Refuse tells the runner to give up all that it has, and to exit. Nothing that it says afterwards counts. A runner of a call
// that was acknowledged exits anyway.
func (s *Runner) Refuse(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.served.isDone() {
		return
	}
	s.over = true
	if s.served != nil {
		for _, call := range s.served.calls {
			call.release()
		}
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
