package fair

import (
	"container/list"
	"context"
	"sync"
)

// Turns bounds how much is in use at once, in total and by one key, and has the rest wait. Keys take turns, and what waits under one
// key is served in the order in which it came: what one key wants delays what another wants by one at most. A key at its own limit
// waits for itself, and the others go on; what is large isn't overtaken for ever by what is small.
//
// The unit is the caller's, such as operations or bytes. Turns takes memory for everything that waits, which callers bound.
type Turns[K comparable] struct {
	total, each int64

	mu    sync.Mutex
	used  int64
	lines map[K]*line[K]
	// turns has the lines in which somebody waits, the next one first.
	turns list.List
}

// line is what one key uses and waits for. It is there while there is either.
type line[K comparable] struct {
	key     K
	used    int64
	waiting list.List
	turn    *list.Element
}

// waiter wants an amount, or has it once it is granted; place is where it waits.
type waiter[K comparable] struct {
	line    *line[K]
	amount  int64
	granted chan struct{}
	place   *list.Element
}

// NewTurns makes one of a limit for all and the limit of one key, in the same unit.
func NewTurns[K comparable](total, each int64) *Turns[K] {
	return &Turns[K]{total: total, each: min(total, each), lines: map[K]*line[K]{}}
}

// Acquire waits until there is room for an amount, which counts as one at least; what exceeds a limit waits until the context ends.
// The caller calls release, where more than once is fine, unless there is an error.
func (t *Turns[K]) Acquire(ctx context.Context, key K, amount int64) (release func(), err error) {
	t.mu.Lock()
	w := t.enter(key, amount)
	t.mu.Unlock()
	select {
	case <-w.granted:
		return t.releaser(w), nil
	case <-ctx.Done():
		t.releaser(w)()
		return nil, ctx.Err()
	}
}

// TryAcquire is Acquire without waiting. It isn't ok when Acquire would wait.
func (t *Turns[K]) TryAcquire(key K, amount int64) (release func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.enter(key, amount)
	if w.place != nil {
		t.leave(w)
		return nil, false
	}
	return t.releaser(w), true
}

func (t *Turns[K]) releaser(w *waiter[K]) func() {
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.leave(w)
	})
}

// Waiting is how many calls of Acquire wait.
func (t *Turns[K]) Waiting() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lines {
		n += l.waiting.Len()
	}
	return n
}

// The rest needs the lock.

// enter has somebody wait, at the end of the key's line, until there is room, which may be at once.
func (t *Turns[K]) enter(key K, amount int64) *waiter[K] {
	l := t.lines[key]
	if l == nil {
		l = &line[K]{key: key}
		t.lines[key] = l
	}
	w := &waiter[K]{line: l, amount: max(amount, 1), granted: make(chan struct{})}
	w.place = l.waiting.PushBack(w)
	if l.turn == nil {
		l.turn = t.turns.PushBack(l)
	}
	t.grant()
	return w
}

// leave ends what somebody has or waits for. Both can make room.
func (t *Turns[K]) leave(w *waiter[K]) {
	l := w.line
	if w.place != nil {
		t.remove(w)
	} else {
		l.used -= w.amount
		t.used -= w.amount
	}
	if l.used == 0 && l.waiting.Len() == 0 {
		delete(t.lines, l.key)
	}
	t.grant()
}

// remove takes a waiter out of its line.
func (t *Turns[K]) remove(w *waiter[K]) {
	l := w.line
	l.waiting.Remove(w.place)
	if w.place = nil; l.waiting.Len() == 0 {
		t.turns.Remove(l.turn)
		l.turn = nil
	}
}

// grant serves the lines in turn while there is room. One at its own limit keeps its turn. Of the others, all wait for the first: it
// would never find room beside those that want less.
func (t *Turns[K]) grant() {
	for at := t.turns.Front(); at != nil; {
		l, next := at.Value.(*line[K]), at.Next()
		first := l.waiting.Front().Value.(*waiter[K])
		switch {
		case first.amount > t.each-l.used:
			at = next
			continue
		case first.amount > t.total-t.used:
			return
		}
		t.remove(first)
		l.used += first.amount
		t.used += first.amount
		close(first.granted)
		if l.turn != nil {
			t.turns.MoveToBack(l.turn)
		}
		if at = next; at == nil {
			at = l.turn
		}
	}
}
