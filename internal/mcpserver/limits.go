package mcpserver

import (
	"context"
	"sync"
)

// principal is who uses a limited resource.
type principal struct{ user, tenant string }

// limit bounds how much of a resource is in use: in total, by one tenant and by one user.
type limit struct {
	total, perTenant, perUser int64

	mu       sync.Mutex
	used     int64
	byTenant map[string]int64
	byUser   map[string]int64
}

// newLimit returns a limit. A perTenant of 0 means that tenants have no bound of their own.
func newLimit(total, perTenant, perUser int) *limit {
	if perTenant == 0 {
		perTenant = total
	}
	return &limit{
		total: int64(total), perTenant: int64(perTenant), perUser: int64(perUser),
		byTenant: map[string]int64{}, byUser: map[string]int64{},
	}
}

// reservation is an amount of a limited resource that is in use.
type reservation struct {
	limit  *limit
	by     principal
	amount int64
}

// reserve takes an amount, unless that exceeds a bound. The caller releases the reservation.
func (l *limit) reserve(p principal, amount int64) (r *reservation, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used+amount > l.total || l.byTenant[p.tenant]+amount > l.perTenant || l.byUser[p.user]+amount > l.perUser {
		return nil, false
	}
	l.add(p, amount)
	return &reservation{limit: l, by: p, amount: amount}, true
}

// shrink returns what exceeds the given amount.
func (r *reservation) shrink(to int64) {
	r.limit.mu.Lock()
	defer r.limit.mu.Unlock()
	if to < r.amount {
		r.limit.add(r.by, to-r.amount)
		r.amount = to
	}
}

// release returns the whole amount.
func (r *reservation) release() { r.shrink(0) }

func (l *limit) add(p principal, amount int64) {
	l.used += amount
	if l.byTenant[p.tenant] += amount; l.byTenant[p.tenant] == 0 {
		delete(l.byTenant, p.tenant)
	}
	if l.byUser[p.user] += amount; l.byUser[p.user] == 0 {
		delete(l.byUser, p.user)
	}
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
