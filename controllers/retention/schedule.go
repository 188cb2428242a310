package retention

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// Schedule remembers when finished calls are to be deleted. There may be very many of them, for hours: an entry takes a few dozen
// bytes here, and a few hundred as a timer of a controller's queue. It is made again by looking at every finished call, which Seed
// does. The last calls of each session aren't known again: those stay for their time.
type Schedule struct {
	clock clock.PassiveClock
	wake  func(types.NamespacedName)

	mu sync.Mutex
	// due has the calls of each second, by the second since 1970.
	due map[int64]map[types.NamespacedName]struct{}
	// last are the finished calls of each session that may stay, the oldest first; ofSessions has these, and those that are to go
	// before their time.
	last       map[types.NamespacedName][]types.NamespacedName
	ofSessions map[types.NamespacedName]callOfSession
}

// callOfSession is a finished call of a session. isSurplus says that it is to go before its time, which is at due.
type callOfSession struct {
	session   types.NamespacedName
	uid       types.UID
	due       time.Time
	isSurplus bool
}

// NewSchedule makes an empty one that calls wake for calls whose time has come.
func NewSchedule(clock clock.PassiveClock, wake func(types.NamespacedName)) *Schedule {
	return &Schedule{
		clock: clock, wake: wake, due: map[int64]map[types.NamespacedName]struct{}{},
		last: map[types.NamespacedName][]types.NamespacedName{}, ofSessions: map[types.NamespacedName]callOfSession{},
	}
}

// Add has a call looked at at a time, within a second after it.
func (s *Schedule) Add(call types.NamespacedName, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	second := at.Unix() + 1
	if s.due[second] == nil {
		s.due[second] = map[types.NamespacedName]struct{}{}
	}
	// Decoding makes a copy of the namespace for each call.
	call.Namespace = unique.Make(call.Namespace).Value()
	s.due[second][call] = struct{}{}
}

// Ended takes a call of a session that has just ended. If the session has more of them than may stay, the oldest is looked at at
// once: it doesn't wait for all others of its second, which would hold up new calls together.
func (s *Schedule) Ended(call *v1alpha1.ToolCall) {
	if goes, is := s.addOfSession(call, call.FinishedAt().Add(ttlOfSession(call))); is {
		s.wake(goes)
	}
}

func (s *Schedule) addOfSession(call *v1alpha1.ToolCall, due time.Time) (goes types.NamespacedName, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(call)
	session := types.NamespacedName{Namespace: call.Namespace, Name: call.Spec.SessionRef.Name}
	s.drop(key)
	s.ofSessions[key] = callOfSession{session: session, uid: call.UID, due: due}
	calls := append(s.last[session], key)
	if len(calls) > keptOfSession {
		goes, is = calls[0], true
		one := s.ofSessions[goes]
		one.isSurplus = true
		s.ofSessions[goes] = one
		calls = calls[1:]
	}
	s.last[session] = calls
	return goes, is
}

// surplus is the UID of a session's call; is says that it is to go before its time.
func (s *Schedule) surplus(call types.NamespacedName) (uid types.UID, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.ofSessions[call]
	return one.uid, one.isSurplus
}

// Forget drops a call that is gone. Another one that has the name by now stays.
func (s *Schedule) Forget(call types.NamespacedName, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, has := s.ofSessions[call]
	if has && one.uid == uid {
		delete(s.due[one.due.Unix()+1], call)
		s.drop(call)
	}
}

// drop needs the lock.
func (s *Schedule) drop(call types.NamespacedName) {
	one, has := s.ofSessions[call]
	if !has {
		return
	}
	delete(s.ofSessions, call)
	calls := slices.DeleteFunc(s.last[one.session], func(other types.NamespacedName) bool { return other == call })
	if s.last[one.session] = calls; len(calls) == 0 {
		delete(s.last, one.session)
	}
}

// Start wakes calls until the context ends.
func (s *Schedule) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(context.Context) {
		for _, call := range s.take(s.clock.Now()) {
			s.wake(call)
		}
	}, time.Second)
	return nil
}

// take removes the calls whose time has come.
func (s *Schedule) take(now time.Time) []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	var calls []types.NamespacedName
	for second, due := range s.due {
		if second <= now.Unix() {
			calls = slices.AppendSeq(calls, maps.Keys(due))
			delete(s.due, second)
		}
	}
	return calls
}
