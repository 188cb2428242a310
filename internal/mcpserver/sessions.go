package mcpserver

import (
	"context"
	"errors"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"toolcall.dev/operator/internal/fair"
)

// sessions records the owner of each open session, and bounds how many are open: in total, for one tenant and for one
// user.
type sessions struct {
	*fair.Counter[string]

	mu     sync.Mutex
	opened map[string]*openSession
}

// openSession is a session and its owner.
type openSession struct {
	// key is that of the owner, and of the session's namespace.
	key   string
	place *fair.Share[string]
	// ending ends when the client ends the session.
	ending context.Context
	cancel context.CancelFunc
}

// register records the owner of a session before its client learns the session's id.
func (s *sessions) register(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		from := senderOf(req.GetExtra())
		session, ok := req.GetSession().(*mcp.ServerSession)
		if ok && method == "initialize" && session.ID() != "" && from != nil && s.find(session.ID(), from) == nil {
			place, ok := s.Acquire(1, from.requester.Tenant, from.requester.User)
			if !ok {
				// Others were opened since the request came. The SDK closes sessions that aren't initialized when their request ends.
				return nil, errors.New("too many open sessions")
			}
			s.add(session, &openSession{key: from.requester.Key(), place: place})
		}
		return next(ctx, method, req)
	}
}

// add records a session until it ends.
func (s *sessions) add(session *mcp.ServerSession, added *openSession) {
	added.ending, added.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	s.opened[session.ID()] = added
	s.mu.Unlock()
	go func() {
		_ = session.Wait()
		s.end(session.ID())
	}()
}

// end forgets a session that has ended, or is about to.
func (s *sessions) end(id string) {
	s.mu.Lock()
	gone := s.opened[id]
	delete(s.opened, id)
	s.mu.Unlock()
	if gone != nil {
		gone.cancel()
		gone.place.Release()
	}
}

// find returns a session that is open and belongs to the user and namespace of a request, nil if there is none.
func (s *sessions) find(id string, from *sender) *openSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.opened[id]; found != nil && found.key == from.requester.Key() {
		return found
	}
	return nil
}
