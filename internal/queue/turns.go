package queue

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Turns holds which calls of each session wait to be handed over, in the order of their creation, and which were handed
// over. Calls enter it when the cache first shows them, which is that order, before anybody looks at one of them.
//
// After a restart it is filled with the calls that have not ended; which of them were handed over, their runners say.
type Turns struct {
	wake func(call types.NamespacedName)

	mu    sync.Mutex
	calls map[types.NamespacedName]*turnOfCall
	lines map[types.NamespacedName]*line
}

// Turn is a call's place among those of its session.
type Turn struct {
	UID types.UID
	// Sequence orders them: the resource version that the call was created with.
	Sequence int64
	// Background calls have turns of their own.
	Background bool
	// FirstSeen is when this operator first saw the call.
	FirstSeen time.Time
}

// turnOfCall is a call that waits in the line of its session, or that was handed over.
type turnOfCall struct {
	Turn
	name, session types.NamespacedName
	// handedIn is the UID of the session that the call was handed over in; empty while it waits. isExcluded says that the
	// session doesn't take the call: it waits for nothing.
	handedIn   types.UID
	isExcluded bool
}

// isInLine says that a call waits for its turn.
func (c *turnOfCall) isInLine() bool { return c.handedIn == "" && !c.isExcluded }

// line are the calls that wait for one session, and those that were handed over in it.
type line struct {
	foreground, background []*turnOfCall
	handed                 map[*turnOfCall]struct{}
}

// NewTurns makes an empty one that calls wake for calls whose turn may have come.
func NewTurns(wake func(types.NamespacedName)) *Turns {
	return &Turns{wake: wake, calls: map[types.NamespacedName]*turnOfCall{}, lines: map[types.NamespacedName]*line{}}
}

func (l *line) of(background bool) *[]*turnOfCall {
	if background {
		return &l.background
	}
	return &l.foreground
}

func compareTurns(a, b *turnOfCall) int {
	return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.UID, b.UID))
}

// Add has a call wait for its turn in a session, and returns that. A call that is known keeps its place, also one that was
// handed over and didn't arrive.
func (t *Turns) Add(session, call types.NamespacedName, turn Turn) Turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	has := t.calls[call]
	if has != nil && has.UID == turn.UID && has.handedIn == "" {
		return has.Turn
	}
	if has != nil && has.UID == turn.UID {
		turn = has.Turn
	}
	t.forget(call)
	one := &turnOfCall{Turn: turn, name: call, session: session}
	t.calls[call] = one
	t.enter(one)
	return turn
}

// Ahead is how many calls come before one that waits; none before one that doesn't.
func (t *Turns) Ahead(call types.NamespacedName) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.calls[call]
	if one == nil || !one.isInLine() {
		return 0
	}
	i, _ := slices.BinarySearchFunc(*t.lines[one.session].of(one.Background), one, compareTurns)
	return i
}

// Hand notes that a call was handed over in the session that has this UID: it doesn't wait any more.
func (t *Turns) Hand(call types.NamespacedName, sessionUID types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.calls[call]; one != nil {
		t.leave(one)
		one.handedIn = sessionUID
		t.enter(one)
	}
}

// Return has the calls wait again, in their places, that were handed over in a session and that its process doesn't have:
// they didn't arrive. Those that come after them don't overtake them.
func (t *Turns) Return(session types.NamespacedName, sessionUID types.UID, has func(call types.UID) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[session]
	if l == nil {
		return
	}
	for one := range l.handed {
		if one.handedIn == sessionUID && !has(one.UID) {
			t.leave(one)
			one.handedIn = ""
			t.enter(one)
		}
	}
}

// Exclude takes a call out of its session's line that the session doesn't take. Nobody waits for its end to be written.
func (t *Turns) Exclude(call types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.calls[call]; one != nil && one.isInLine() {
		t.leave(one)
		one.isExcluded = true
	}
}

// HandedIn is the UID of the session that this operator handed a call over in; empty when it didn't.
func (t *Turns) HandedIn(call types.NamespacedName, uid types.UID) types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.calls[call]; one != nil && one.UID == uid {
		return one.handedIn
	}
	return ""
}

// Forget drops a call that has ended or is gone.
func (t *Turns) Forget(call types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(call)
}

// Waiting counts the calls that wait for their sessions.
func (t *Turns) Waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, l := range t.lines {
		n += len(l.foreground) + len(l.background)
	}
	return n
}

// Wake has the first calls of a session looked at: as many as there is room for, of each kind.
func (t *Turns) Wake(session types.NamespacedName, calls, background int) {
	for _, call := range t.first(session, calls, background) {
		t.wake(call)
	}
}

func (t *Turns) first(session types.NamespacedName, calls, background int) (names []types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[session]
	if l == nil {
		return nil
	}
	for _, one := range slices.Concat(l.foreground[:min(calls, len(l.foreground))], l.background[:min(background, len(l.background))]) {
		names = append(names, one.name)
	}
	return names
}

// The rest needs the lock.

func (t *Turns) forget(call types.NamespacedName) {
	if one := t.calls[call]; one != nil {
		t.leave(one)
		delete(t.calls, call)
	}
}

// enter puts a call into its session's line, or among those that were handed over.
func (t *Turns) enter(one *turnOfCall) {
	l := t.lines[one.session]
	if l == nil {
		l = &line{handed: map[*turnOfCall]struct{}{}}
		t.lines[one.session] = l
	}
	if one.handedIn != "" {
		l.handed[one] = struct{}{}
		return
	}
	turns := l.of(one.Background)
	i, _ := slices.BinarySearchFunc(*turns, one, compareTurns)
	*turns = slices.Insert(*turns, i, one)
}

// leave takes a call out of its session's line, or from those that were handed over.
func (t *Turns) leave(one *turnOfCall) {
	l := t.lines[one.session]
	if l == nil {
		return
	}
	delete(l.handed, one)
	turns := l.of(one.Background)
	if i, found := slices.BinarySearchFunc(*turns, one, compareTurns); found && one.isInLine() {
		*turns = slices.Delete(*turns, i, i+1)
	}
	if len(l.foreground)+len(l.background)+len(l.handed) == 0 {
		delete(t.lines, one.session)
	}
}
