package mcpserver

import (
	"context"
	"sync"
)

// quota bounds how many of something there are at a time, in all and for one user.
type quota struct {
	total, each int

	mu    sync.Mutex
	taken int
	by    map[string]int
}

// take says whether one more may be; if so, the function gives it back.
func (q *quota) take(user string) (func(), bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken >= q.total || q.by[user] >= q.each {
		return nil, false
	}
	if q.by == nil {
		q.by = map[string]int{}
	}
	q.taken++
	q.by[user]++
	return sync.OnceFunc(func() { q.giveBack(user) }), true
}

func (q *quota) giveBack(user string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken--
	if q.by[user]--; q.by[user] == 0 {
		delete(q.by, user)
	}
}

// inFlight knows the calls of every session, so that ending a session ends them.
type inFlight struct {
	mu     sync.Mutex
	next   int
	cancel map[string]map[int]context.CancelFunc
}

// add remembers a call's cancel function until the returned function is called.
func (f *inFlight) add(session string, cancel context.CancelFunc) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cancel == nil {
		f.cancel = map[string]map[int]context.CancelFunc{}
	}
	if f.cancel[session] == nil {
		f.cancel[session] = map[int]context.CancelFunc{}
	}
	f.next++
	id := f.next
	f.cancel[session][id] = cancel
	return func() { f.forget(session, id) }
}

func (f *inFlight) forget(session string, id int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if delete(f.cancel[session], id); len(f.cancel[session]) == 0 {
		delete(f.cancel, session)
	}
}

// end cancels every call of a session.
func (f *inFlight) end(session string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, cancel := range f.cancel[session] {
		cancel()
	}
}
