package queue

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// SessionQueue holds which calls of each session wait to be handed over, in the order of their creation, and which were handed
// over. Calls enter it when the cache first shows them, which is that order, before anybody looks at one of them.
//
// After a restart it is filled with the calls that have not ended; which of them were handed over, their runners say.
type SessionQueue struct {
	wake func(call types.NamespacedName)

	mu    sync.Mutex
	calls map[types.NamespacedName]*queuedCall
	lines map[types.NamespacedName]*line
}

// Position is a call's place among those of its session.
type Position struct {
	UID types.UID
	// Sequence orders them: the resource version that the call was created with.
	Sequence int64
	// Background calls have a line of their own.
	Background bool
	// FirstSeen is when this operator first saw the call.
	FirstSeen time.Time
}

// Place is where a call is.
type Place struct {
	Position
	// HandedIn is the UID of the session that this operator handed the call over in; empty while it waits. IsExcluded says that the
	// session doesn't take the call: it has lost its place, waits for nothing, and Add gives it back.
	HandedIn   types.UID
	IsExcluded bool
}

// queuedCall is a call that waits in the line of its session, or that was handed over.
type queuedCall struct {
	Place
	name, session types.NamespacedName
}

// isInLine says that a call waits for its turn.
func (c *queuedCall) isInLine() bool { return c.HandedIn == "" && !c.IsExcluded }

// line are the calls that wait for one session, and those that were handed over in it.
type line struct {
	foreground, background []*queuedCall
	handed                 map[*queuedCall]struct{}
}

// NewSessionQueue makes an empty one that calls wake for calls whose turn may have come.
func NewSessionQueue(wake func(types.NamespacedName)) *SessionQueue {
	return &SessionQueue{wake: wake, calls: map[types.NamespacedName]*queuedCall{}, lines: map[types.NamespacedName]*line{}}
}

func (l *line) of(background bool) *[]*queuedCall {
	if background {
		return &l.background
	}
	return &l.foreground
}

func comparePositions(a, b *queuedCall) int {
	return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.UID, b.UID))
}

// Add has a call wait for its turn in a session. A call that is known keeps its place, also one that was handed over and didn't
// arrive, or that was excluded and is taken now. Who waited behind another one of the name, which is gone, is woken.
func (q *SessionQueue) Add(session, call types.NamespacedName, at Position) {
	if before := q.add(session, call, at); before.Name != "" {
		q.Wake(before, true, true)
	}
}

func (q *SessionQueue) add(session, call types.NamespacedName, at Position) (before types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch has := q.calls[call]; {
	case has == nil:
	case has.UID != at.UID:
		before = has.session
	case has.isInLine():
		return before
	default:
		at = has.Position
	}
	q.forget(call)
	one := &queuedCall{Place{Position: at}, call, session}
	q.calls[call] = one
	q.enter(one)
	return before
}

// Place is what is known of a call; ok is false where that is nothing.
func (q *SessionQueue) Place(call types.NamespacedName, uid types.UID) (p Place, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := q.calls[call]
	if one == nil || one.UID != uid {
		return Place{}, false
	}
	return one.Place, true
}

// Ahead is how many calls come before one that waits; none before one that doesn't. Those that were handed over in the session
// that has this UID and that its process doesn't have come before it, too: they didn't arrive, and aren't overtaken. A call is handed
// over only when none is ahead, so that one whose pass fails isn't overtaken by the next one's.
func (q *SessionQueue) Ahead(call types.NamespacedName, sessionUID types.UID, has func(call types.UID) bool) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	one := q.calls[call]
	if one == nil || !one.isInLine() {
		return 0
	}
	l := q.lines[one.session]
	ahead, _ := slices.BinarySearchFunc(*l.of(one.Background), one, comparePositions)
	for other := range l.handed {
		if other.HandedIn == sessionUID && other.Background == one.Background && comparePositions(other, one) < 0 && !has(other.UID) {
			ahead++
		}
	}
	return ahead
}

// Hand notes that a call was handed over in the session that has this UID: it doesn't wait any more.
func (q *SessionQueue) Hand(call types.NamespacedName, sessionUID types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if one := q.calls[call]; one != nil {
		q.leave(one)
		one.HandedIn, one.IsExcluded = sessionUID, false
		q.enter(one)
	}
}

// Exclude takes a call that its session doesn't take out of the line, so that nobody waits until its end is written. The caller wakes
// those who came after it.
func (q *SessionQueue) Exclude(call types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if one := q.calls[call]; one != nil && one.isInLine() {
		q.leave(one)
		one.IsExcluded = true
	}
}

// Forget drops a call that has ended or is gone. It returns the session in whose line the call was, or that it was handed over in: the
// caller wakes those who came after it. The session is empty where nobody waited for the call.
func (q *SessionQueue) Forget(call types.NamespacedName) (session types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if one := q.calls[call]; one != nil && !one.IsExcluded {
		session = one.session
	}
	q.forget(call)
	return session
}

// Waiting counts the calls that wait, by session.
func (q *SessionQueue) Waiting() map[types.NamespacedName]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := map[types.NamespacedName]int{}
	for session, l := range q.lines {
		if n := len(l.foreground) + len(l.background); n > 0 {
			waiting[session] = n
		}
	}
	return waiting
}

// Wake has the first call looked at that waits in a session, and the first background call: those whose turn it may be. Each wakes the
// next one when it is handed over.
func (q *SessionQueue) Wake(session types.NamespacedName, calls, background bool) {
	for _, call := range q.first(session, calls, background) {
		q.wake(call)
	}
}

func (q *SessionQueue) first(session types.NamespacedName, calls, background bool) (names []types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[session]
	if l == nil {
		return nil
	}
	if calls && len(l.foreground) > 0 {
		names = append(names, l.foreground[0].name)
	}
	if background && len(l.background) > 0 {
		names = append(names, l.background[0].name)
	}
	return names
}

// The rest needs the lock.

func (q *SessionQueue) forget(call types.NamespacedName) {
	if one := q.calls[call]; one != nil {
		q.leave(one)
		delete(q.calls, call)
	}
}

// enter puts a call into its session's line, or among those that were handed over.
func (q *SessionQueue) enter(one *queuedCall) {
	l := q.lines[one.session]
	if l == nil {
		l = &line{handed: map[*queuedCall]struct{}{}}
		q.lines[one.session] = l
	}
	if one.HandedIn != "" {
		l.handed[one] = struct{}{}
		return
	}
	in := l.of(one.Background)
	i, _ := slices.BinarySearchFunc(*in, one, comparePositions)
	*in = slices.Insert(*in, i, one)
}

// leave takes a call out of its session's line, or from those that were handed over.
func (q *SessionQueue) leave(one *queuedCall) {
	l := q.lines[one.session]
	if l == nil {
		return
	}
	delete(l.handed, one)
	in := l.of(one.Background)
	if i, found := slices.BinarySearchFunc(*in, one, comparePositions); found && one.isInLine() {
		*in = slices.Delete(*in, i, i+1)
	}
	if len(l.foreground)+len(l.background)+len(l.handed) == 0 {
		delete(q.lines, one.session)
	}
}
