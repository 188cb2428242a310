package mcpserver

import (
	"context"
	"iter"
	"maps"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessions records the owner of each open session, and bounds how many are open: in total, for one tenant and for one
// user. The SDK doesn't report the end of a session, so each query compares with the sessions that the SDK has open.
type sessions struct {
	total, perTenant, perUser int
	// open lists the sessions that the SDK has open.
	open func() iter.Seq[*mcp.ServerSession]

	mu     sync.Mutex
	owners map[string]owner
	// opening counts the requests that may open a session.
	opening map[principal]int
}

// owner is the user and the namespace that a session belongs to.
type owner struct {
	principal
	// key is the same for all tokens of a user, and differs between namespaces.
	key string
}

func newSessions(total, perTenant, perUser int, open func() iter.Seq[*mcp.ServerSession]) *sessions {
	return &sessions{
		total: total, perTenant: perTenant, perUser: perUser, open: open,
		owners: map[string]owner{}, opening: map[principal]int{},
	}
}

// reserve reserves a place for a session that a request may open. The caller calls release after the request.
func (s *sessions) reserve(p principal) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeClosed()
	total, ofTenant, ofUser := 0, 0, 0
	count := func(q principal, n int) {
		total += n
		if q.tenant == p.tenant {
			ofTenant += n
		}
		if q.user == p.user {
			ofUser += n
		}
	}
	for _, o := range s.owners {
		count(o.principal, 1)
	}
	for q, n := range s.opening {
		count(q, n)
	}
	if total >= s.total || ofTenant >= s.perTenant || ofUser >= s.perUser {
		return nil, false
	}
	s.opening[p]++
	return sync.OnceFunc(func() { s.release(p) }), true
}

func (s *sessions) release(p principal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opening[p]--; s.opening[p] == 0 {
		delete(s.opening, p)
	}
}

// register records the owner of a session before its client learns the session's id.
func (s *sessions) register(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		extra, session := req.GetExtra(), req.GetSession()
		if requester := requesterIn(extra); method == "initialize" && session.ID() != "" && requester != nil {
			s.mu.Lock()
			s.owners[session.ID()] = owner{principal: requester.principal(), key: extra.TokenInfo.UserID}
			s.mu.Unlock()
		}
		return next(ctx, method, req)
	}
}

// removeClosed forgets the sessions that the SDK has closed. The caller holds the lock.
func (s *sessions) removeClosed() {
	open := map[string]bool{}
	for session := range s.open() {
		open[session.ID()] = true
	}
	maps.DeleteFunc(s.owners, func(id string, _ owner) bool { return !open[id] })
}

// isOwned reports whether a session is open and belongs to the user and namespace of the key.
func (s *sessions) isOwned(id, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.owners[id]
	return ok && o.key == key
}

// count returns the number of open sessions.
func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeClosed()
	return len(s.owners)
}
