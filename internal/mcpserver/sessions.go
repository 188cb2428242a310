package mcpserver

import (
	"context"
	"iter"
	"maps"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessions knows whose each open session is, and bounds their number in all and for one user. The SDK doesn't
// tell when one ends; who asks is told by comparing with those that are open.
type sessions struct {
	total, each int
	// open lists the sessions that the SDK has.
	open func() iter.Seq[*mcp.ServerSession]

	mu     sync.Mutex
	owners map[string]string
	// beginning counts, by user, the requests that may begin a session.
	beginning map[string]int
}

func newSessions(total, each int, open func() iter.Seq[*mcp.ServerSession]) *sessions {
	return &sessions{total: total, each: each, open: open, owners: map[string]string{}, beginning: map[string]int{}}
}

// begin says whether a user may have one more. If so, the function is called when that has begun, or hasn't.
func (s *sessions) begin(user string) (func(), bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetClosed()
	all, own := len(s.owners), s.beginning[user]
	for _, n := range s.beginning {
		all += n
	}
	for _, owner := range s.owners {
		if owner == user {
			own++
		}
	}
	if all >= s.total || own >= s.each {
		return nil, false
	}
	s.beginning[user]++
	return sync.OnceFunc(func() { s.begun(user) }), true
}

func (s *sessions) begun(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beginning[user]--; s.beginning[user] == 0 {
		delete(s.beginning, user)
	}
}

// register notes whose a session is before its client is told the session's id.
func (s *sessions) register(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		extra, session := req.GetExtra(), req.GetSession()
		if method == "initialize" && session.ID() != "" && extra != nil && extra.TokenInfo != nil {
			s.mu.Lock()
			s.owners[session.ID()] = extra.TokenInfo.UserID
			s.mu.Unlock()
		}
		return next(ctx, method, req)
	}
}

// forgetClosed needs the lock.
func (s *sessions) forgetClosed() {
	still := map[string]bool{}
	for session := range s.open() {
		still[session.ID()] = true
	}
	maps.DeleteFunc(s.owners, func(id, _ string) bool { return !still[id] })
}

// owned says whether a session is open and the user's.
func (s *sessions) owned(id, user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner, ok := s.owners[id]
	return ok && owner == user
}

// count is the number of open sessions.
func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetClosed()
	return len(s.owners)
}
