package mcpserver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
)

const (
	// maxSessionsOfClient bounds the sessions of calls that one conversation has at the same time.
	maxSessionsOfClient = 16
	// conversationIdleSeconds is how long the session of a conversation stays without a call. A conversation can wait for a person.
	conversationIdleSeconds = 3600
)

// conversations are the clients' connections, over standard input and output, or the protocol's sessions over HTTP. Sessions of
// calls that were started in one end with it.
type conversations struct {
	// failed receives the sessions that could not be ended. They end by themselves when they are idle.
	failed func(key types.NamespacedName, err error)
	// places bound the conversations over HTTP: in total, of one tenant and of one user.
	places *fair.Counter[string]

	mu      sync.Mutex
	clients map[*mcp.ServerSession]*conversation
	// watching are the goroutines that wait for the ends of conversations.
	watching sync.WaitGroup
}

// conversation is what is known of one client.
type conversation struct {
	// owner is the key of who opened it over HTTP, and place is one of the places.
	owner string
	place *fair.Share[string]
	// ending ends when the client ends the conversation.
	ending context.Context
	cancel context.CancelFunc
	// sessions end with the conversation, each for its requester.
	sessions map[types.NamespacedName]*identity.Requester
	// own is the conversation's own session, once starting has created it.
	own      *v1alpha1.SessionReference
	starting singleflight.Group
}

func newConversations(failed func(key types.NamespacedName, err error)) *conversations {
	return &conversations{failed: failed, clients: map[*mcp.ServerSession]*conversation{}}
}

// open takes a place for a conversation, unless it has one. It returns false if there is none.
func (c *conversations) open(client *mcp.ServerSession, who *identity.Requester) (ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	opened := c.locked(client)
	if opened.place != nil {
		return true
	}
	opened.owner = who.Key()
	opened.place, ok = c.places.Acquire(1, who.Tenant, who.User)
	return ok
}

// find returns the client of a conversation over HTTP that goes on and belongs to a user and namespace, nil if there is none.
func (c *conversations) find(id string, who *identity.Requester) *mcp.ServerSession {
	owner := who.Key()
	c.mu.Lock()
	defer c.mu.Unlock()
	for client, found := range c.clients {
		if client.ID() == id && found.owner == owner && found.ending.Err() == nil {
			return client
		}
	}
	return nil
}

// close has the calls of a conversation stop, since its client ends it, and closes its connection.
func (c *conversations) close(client *mcp.ServerSession) {
	c.change(client, (*conversation).close)
	_ = client.Close()
}

func (c *conversation) close() {
	c.cancel()
	if c.place != nil {
		c.place.Release()
	}
}

// lasts reports whether a client's connection is a conversation. In versions of the protocol without sessions, each HTTP
// request has a connection of its own.
func lasts(req *mcp.CallToolRequest) bool {
	return senderOf(req.Extra) == nil || req.Session.ID() != ""
}

// of returns the conversation of a client.
func (c *conversations) of(client *mcp.ServerSession) *conversation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.locked(client)
}

// locked returns the conversation of a client, and ends its sessions when the client is gone: at once, if it is. The caller holds the lock.
func (c *conversations) locked(client *mcp.ServerSession) *conversation {
	if found := c.clients[client]; found != nil {
		return found
	}
	added := &conversation{sessions: map[types.NamespacedName]*identity.Requester{}}
	added.ending, added.cancel = context.WithCancel(context.Background())
	c.clients[client] = added
	c.watching.Go(func() {
		_ = client.Wait()
		c.end(client)
	})
	return added
}

// change calls a function with the conversation of a client, if there is one, under the lock.
func (c *conversations) change(client *mcp.ServerSession, do func(*conversation)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.clients[client]; found != nil {
		do(found)
	}
}

// keep has a session end with the conversation that created it. It returns false if the conversation has too many sessions.
func (c *conversations) keep(req *mcp.CallToolRequest, who *identity.Requester, key types.NamespacedName) bool {
	if !lasts(req) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.locked(req.Session)
	if of.sessions[key] == nil && len(of.sessions) >= maxSessionsOfClient {
		return false
	}
	of.sessions[key] = who
	return true
}

// share has a session that another request created end with the last of its conversations. A session of none of them is not this
// conversation's to end.
func (c *conversations) share(req *mcp.CallToolRequest, who *identity.Requester, key types.NamespacedName) {
	if !lasts(req) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isHeld(key) {
		c.locked(req.Session).sessions[key] = who
	}
}

// isHeld reports whether a session ends with a conversation. The caller holds the lock.
func (c *conversations) isHeld(key types.NamespacedName) bool {
	for _, other := range c.clients {
		if other.sessions[key] != nil {
			return true
		}
	}
	return false
}

// keys returns the sessions that end with the conversation.
func (c *conversations) keys(client *mcp.ServerSession) (keys []types.NamespacedName) {
	c.change(client, func(of *conversation) { keys = slices.Collect(maps.Keys(of.sessions)) })
	return keys
}

// renew has the sessions of a conversation end with newer credentials of its user: tokens expire.
func (c *conversations) renew(client *mcp.ServerSession, who *identity.Requester) {
	c.change(client, func(of *conversation) {
		for key := range of.sessions {
			of.sessions[key] = who
		}
	})
}

// remove forgets a session that has ended.
func (c *conversations) remove(req *mcp.CallToolRequest, key types.NamespacedName) {
	c.change(req.Session, func(of *conversation) { delete(of.sessions, key) })
}

// end forgets a conversation and ends the sessions that end with it.
func (c *conversations) end(client *mcp.ServerSession) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	var ending sync.WaitGroup
	c.change(client, func(gone *conversation) {
		delete(c.clients, client)
		gone.close()
		for key, who := range gone.sessions {
			if c.isHeld(key) {
				continue
			}
			ending.Go(func() {
				if err := endForSure(ctx, who, key); err != nil {
					c.failed(key, err)
				}
			})
		}
	})
	ending.Wait()
}

// endForSure asks for the end of a session until the API server has answered.
func endForSure(ctx context.Context, who *identity.Requester, key types.NamespacedName) error {
	return client.IgnoreNotFound(untilAnswered(ctx, func() error { return requestEnd(ctx, who, key) }))
}

// openConversation records the owner of a session of the protocol before its client learns the session's id.
func (s *Server) openConversation(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		from := senderOf(req.GetExtra())
		client, ok := req.GetSession().(*mcp.ServerSession)
		if !ok || method != "initialize" || client.ID() == "" || from == nil {
			return next(ctx, method, req)
		}
		// Others were opened since the request came, or the server closes those that there are. The SDK closes sessions that aren't
		// initialized when their request ends.
		if s.stopping.Err() != nil || !s.conversations.open(client, from.requester) {
			return nil, errors.New("too many open sessions")
		}
		return next(ctx, method, req)
	}
}

// joins reports whether a call runs in the session of its conversation: it names neither a session nor an environment.
func (s *Server) joins(call *v1alpha1.ToolCall) bool {
	return s.options.SessionPerClient && call.Spec.SessionRef == nil && call.Spec.EnvironmentRef == nil
}

// ownSession returns the session of a conversation, which the first call that joins it creates. Requests that wait for another one to create
// it share its failure: each of them would take as long to fail.
func (s *Server) ownSession(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester) (*v1alpha1.SessionReference, error) {
	c := s.conversations.of(req.Session)
	starting := c.starting.DoChan("", func() (any, error) { return s.startOwn(context.WithoutCancel(ctx), req, who) })
	select {
	case started := <-starting:
		own, _ := started.Val.(*v1alpha1.SessionReference)
		return own, started.Err
	case <-ctx.Done():
		// The server stays until it is known which session ends with the conversation.
		s.running.Go(func() { <-starting })
		return nil, errCancelledBefore
	}
}

// startOwn creates the session of a conversation unless there is one.
func (s *Server) startOwn(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester) (own *v1alpha1.SessionReference, err error) {
	s.conversations.change(req.Session, func(of *conversation) { own = of.own })
	if own != nil {
		return own, nil
	}
	session := &v1alpha1.ToolSession{Spec: v1alpha1.ToolSessionSpec{IdleTimeoutSeconds: new(int32(conversationIdleSeconds))}}
	if err := setName(ctx, who, session, ""); err != nil {
		return nil, err
	}
	created, err := s.createSession(ctx, req, who, session, false)
	if err != nil {
		return nil, err
	}
	own = &v1alpha1.SessionReference{Name: created.Name, UID: string(created.UID)}
	s.conversations.change(req.Session, func(of *conversation) { of.own = own })
	return own, nil
}

// leaveConversation forgets the session of a conversation if it has ended, so that the next call starts another one. The
// model has to know that the files are gone.
func (s *Server) leaveConversation(req *mcp.CallToolRequest, call *v1alpha1.ToolCall, result *reply.Result) {
	session := call.Spec.SessionRef
	if call.Status.Reason != v1alpha1.ReasonSessionEnded && call.Status.Reason != v1alpha1.ReasonSessionNotFound {
		return
	}
	s.conversations.change(req.Session, func(of *conversation) {
		if of.own == nil || session == nil || *of.own != *session {
			return
		}
		of.own = nil
		delete(of.sessions, client.ObjectKey{Namespace: call.Namespace, Name: session.Name})
		result.Output += "\n\nThe session of this conversation has ended, and its files are gone, except on volumes that list_environments " +
			"shows. The next call starts another session, which has only the files on those volumes."
	})
}
