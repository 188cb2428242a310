package mcpserver

import (
	"cmp"
	"context"
	"sync"

	"toolcall.dev/operator/internal/fair"
)

// principal is who uses a limited resource.
type principal struct{ user, tenant string }

// limit bounds how much of a resource is in use: in total, by one tenant and by one user.
type limit struct {
	*fair.Counter[string]
	total, perTenant, perUser int
}

// newLimit returns a limit. A perTenant of 0 means that tenants have no bound of their own.
func newLimit(total, perTenant, perUser int) *limit {
	perTenant = cmp.Or(perTenant, total)
	return &limit{fair.NewCounter[string](int64(total), int64(perTenant), int64(perUser)), total, perTenant, perUser}
}

// reserve takes an amount, unless that exceeds a bound. The caller releases it.
func (l *limit) reserve(p principal, amount int64) (share *fair.Share[string], ok bool) {
	return l.Acquire(amount, p.tenant, p.user)
}

// inFlight holds the running calls of each session, so that the end of a session cancels them.
type inFlight struct {
	mu     sync.Mutex
	next   int
	cancel map[string]map[int]context.CancelFunc
}

// add registers a call's cancel function until remove is called.
func (f *inFlight) add(session string, cancel context.CancelFunc) (remove func()) {
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
	return func() { f.remove(session, id) }
}

func (f *inFlight) remove(session string, id int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if delete(f.cancel[session], id); len(f.cancel[session]) == 0 {
		delete(f.cancel, session)
	}
}

// cancelAll cancels every call of a session.
func (f *inFlight) cancelAll(session string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, cancel := range f.cancel[session] {
		cancel()
	}
}
