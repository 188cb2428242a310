package mcpserver

import (
	"context"
	"iter"
	"maps"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"toolcall.dev/operator/internal/mcpserver/limits"
)

// sessions records the owner of each open session, and bounds how many are open: in total, for one tenant and for one
// user. The SDK doesn't report the end of a session, so each query compares with the sessions that the SDK has open.
type sessions struct {
	total, perTenant, perUser int
	// open lists the sessions that the SDK has open.
	open func() iter.Seq[*mcp.ServerSession]

	mu     sync.Mutex
	opened map[string]*openSession
	// opening counts the requests that may open a session.
	opening map[limits.Principal]int
}

// openSession is a session and its owner.
type openSession struct {
	limits.Principal
	// key is that of the owner, and of the session's namespace.
	key string
	// ending ends when the client ends the session.
	ending context.Context
	end    context.CancelFunc
}

func newSessions(total, perTenant, perUser int, open func() iter.Seq[*mcp.ServerSession]) *sessions {
	return &sessions{
		total: total, perTenant: perTenant, perUser: perUser, open: open,
		opened: map[string]*openSession{}, opening: map[limits.Principal]int{},
	}
}

// reserve reserves a place for a session that a request may open. The caller calls release after the request.
func (s *sessions) reserve(p limits.Principal) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeClosed()
	used := limits.New(s.total, s.perTenant, s.perUser)
	for _, o := range s.opened {
		used.Reserve(o.Principal, 1)
	}
	for q, n := range s.opening {
		for range n {
			// One that has opened its session counts twice for a moment.
			used.Reserve(q, 1)
		}
	}
	if _, ok := used.Reserve(p, 1); !ok {
		return nil, false
	}
	s.opening[p]++
	return sync.OnceFunc(func() { s.release(p) }), true
}

func (s *sessions) release(p limits.Principal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opening[p]--; s.opening[p] == 0 {
		delete(s.opening, p)
	}
}

// register records the owner of a session before its client learns the session's id.
func (s *sessions) register(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		from, id := senderOf(req.GetExtra()), req.GetSession().ID()
		if method == "initialize" && id != "" && from != nil {
			added := &openSession{Principal: from.requester.Principal(), key: from.key}
			added.ending, added.end = context.WithCancel(context.Background())
			s.mu.Lock()
			s.opened[id] = added
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
	maps.DeleteFunc(s.opened, func(id string, gone *openSession) bool {
		if !open[id] {
			gone.end()
		}
		return !open[id]
	})
}

// find returns a session that is open and belongs to the user and namespace of the key, nil if there is none.
func (s *sessions) find(id, key string) *openSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.opened[id]; found != nil && found.key == key {
		return found
	}
	return nil
}

// count returns the number of open sessions.
func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeClosed()
	return len(s.opened)
}
