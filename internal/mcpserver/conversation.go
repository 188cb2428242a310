package mcpserver

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
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

	mu      sync.Mutex
	clients map[*mcp.ServerSession]*conversation
	// watching are the goroutines that wait for the ends of conversations.
	watching sync.WaitGroup
}

// conversation holds the sessions of calls of one client.
type conversation struct {
	sessions map[types.NamespacedName]*held
	// starting has a place for the request that creates the conversation's own session.
	starting chan struct{}
	own      *v1alpha1.SessionReference
	// failures counts the failures to create it, and failure is the last one.
	failures int
	failure  error
}

// held is a session of a conversation.
type held struct {
	who *identity.Requester
	// created says that the session ends with the conversation. Until the API server has answered it is only a place, of as many
	// requests.
	created  bool
	requests int
}

func newConversations(failed func(key types.NamespacedName, err error)) *conversations {
	return &conversations{failed: failed, clients: map[*mcp.ServerSession]*conversation{}}
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

// locked returns the conversation of a client, and ends its sessions when the client is gone. The caller holds the lock.
func (c *conversations) locked(client *mcp.ServerSession) *conversation {
	if found := c.clients[client]; found != nil {
		return found
	}
	added := &conversation{sessions: map[types.NamespacedName]*held{}, starting: make(chan struct{}, 1)}
	c.clients[client] = added
	c.watching.Go(func() {
		_ = client.Wait()
		c.end(client)
	})
	return added
}

// add reserves a place for a session. It returns false if the conversation has too many sessions.
func (c *conversations) add(req *mcp.CallToolRequest, who *identity.Requester, key types.NamespacedName) bool {
	if !lasts(req) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	added := c.locked(req.Session)
	h := added.sessions[key]
	if h == nil && len(added.sessions) >= maxSessionsOfClient {
		return false
	}
	if h == nil {
		h = &held{who: who}
		added.sessions[key] = h
	}
	h.requests++
	return true
}

// change calls a function with the conversation of a client, if there is one, under the lock.
func (c *conversations) change(client *mcp.ServerSession, do func(*conversation)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.clients[client]; found != nil {
		do(found)
	}
}

// keep has a session end with the conversation. It returns false if the conversation has ended meanwhile.
func (c *conversations) keep(req *mcp.CallToolRequest, key types.NamespacedName) (kept bool) {
	c.change(req.Session, func(of *conversation) {
		if h := of.sessions[key]; h != nil {
			h.created, kept = true, true
		}
	})
	return kept || !lasts(req)
}

// share has a session that another request created end with the last of its conversations. A session of none of them is not this
// conversation's to end.
func (c *conversations) share(req *mcp.CallToolRequest, key types.NamespacedName) {
	c.change(req.Session, func(of *conversation) {
		if h := of.sessions[key]; h != nil {
			h.created = c.isHeld(key)
		}
	})
}

// isHeld reports whether a session ends with a conversation. The caller holds the lock.
func (c *conversations) isHeld(key types.NamespacedName) bool {
	for _, other := range c.clients {
		if h := other.sessions[key]; h != nil && h.created {
			return true
		}
	}
	return false
}

// release gives up a request's place of a session that the conversation didn't create.
func (c *conversations) release(req *mcp.CallToolRequest, key types.NamespacedName) {
	c.change(req.Session, func(of *conversation) {
		h := of.sessions[key]
		if h == nil {
			return
		}
		if h.requests--; h.requests == 0 && !h.created {
			delete(of.sessions, key)
		}
	})
}

// keys returns the sessions that end with the conversation.
func (c *conversations) keys(client *mcp.ServerSession) (keys []types.NamespacedName) {
	c.change(client, func(of *conversation) {
		for key, h := range of.sessions {
			if h.created {
				keys = append(keys, key)
			}
		}
	})
	return keys
}

// renew has the sessions of a conversation end with newer credentials of its user: tokens expire.
func (c *conversations) renew(client *mcp.ServerSession, who *identity.Requester) {
	c.change(client, func(of *conversation) {
		for _, h := range of.sessions {
			h.who = who
		}
	})
}

// remove forgets a session that has ended.
func (c *conversations) remove(req *mcp.CallToolRequest, key types.NamespacedName) {
	c.change(req.Session, func(of *conversation) { delete(of.sessions, key) })
}

// leave forgets a conversation and returns the sessions that end with it.
func (c *conversations) leave(client *mcp.ServerSession) map[types.NamespacedName]*identity.Requester {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := c.clients[client]
	delete(c.clients, client)
	if gone == nil {
		return nil
	}
	sessions := map[types.NamespacedName]*identity.Requester{}
	for key, h := range gone.sessions {
		if h.created && !c.isHeld(key) {
			sessions[key] = h.who
		}
	}
	return sessions
}

// end ends the sessions of a conversation.
func (c *conversations) end(client *mcp.ServerSession) {
	sessions := c.leave(client)
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	var ending sync.WaitGroup
	for key, who := range sessions {
		ending.Go(func() {
			if err := endForSure(ctx, who, key); err != nil {
				c.failed(key, err)
			}
		})
	}
	ending.Wait()
}

// endForSure asks for the end of a session until the API server has answered.
func endForSure(ctx context.Context, who *identity.Requester, key types.NamespacedName) error {
	return client.IgnoreNotFound(untilAnswered(ctx, func() error { return requestEnd(ctx, who, key) }))
}

// joins reports whether a call runs in the session of its conversation: it names neither a session nor an environment.
func (s *Server) joins(call *v1alpha1.ToolCall) bool {
	return s.options.SessionPerClient && call.Spec.SessionRef == nil && call.Spec.EnvironmentRef == nil
}

// ownSession returns the session of a conversation, which the first call that joins it creates. Requests that wait for another one to create
// it share its failure: each of them would take as long to fail.
func (s *Server) ownSession(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester) (*v1alpha1.SessionReference, error) {
	c := s.conversations.of(req.Session)
	_, before, _ := s.conversations.ownOf(c)
	select {
	case c.starting <- struct{}{}:
		defer func() { <-c.starting }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return nil, &failure{reason: v1alpha1.ReasonCancelRequested, message: "the request was cancelled before the call was created"}
	}
	own, failures, failed := s.conversations.ownOf(c)
	switch {
	case own != nil:
		return own, nil
	case failures != before:
		return nil, failed
	}
	session := &v1alpha1.ToolSession{Spec: v1alpha1.ToolSessionSpec{IdleTimeoutSeconds: new(int32(conversationIdleSeconds))}}
	session.Namespace, session.Name = who.Namespace, namePrefix+utilrand.String(nameLength)
	created, err := s.createSession(ctx, req, who, session, false)
	if err == nil {
		own = &v1alpha1.SessionReference{Name: created.Name, UID: string(created.UID)}
	}
	s.conversations.setOwn(c, own, err)
	return own, err
}

// ownOf returns the session of a conversation, nil if there is none, and how often creating it failed.
func (c *conversations) ownOf(of *conversation) (own *v1alpha1.SessionReference, failures int, failed error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return of.own, of.failures, of.failure
}

func (c *conversations) setOwn(of *conversation, own *v1alpha1.SessionReference, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of.own = own
	if err != nil {
		of.failures, of.failure = of.failures+1, err
	}
}

// forgetOwn reports whether the session of a conversation is a certain one, and forgets it then.
func (c *conversations) forgetOwn(client *mcp.ServerSession, session *v1alpha1.SessionReference) (forgot bool) {
	c.change(client, func(of *conversation) {
		if of.own != nil && session != nil && *of.own == *session {
			of.own, forgot = nil, true
		}
	})
	return forgot
}

// leaveConversation forgets the session of a conversation if it has ended, so that the next call starts another one. The
// model has to know that the files are gone.
func (s *Server) leaveConversation(req *mcp.CallToolRequest, call *v1alpha1.ToolCall, result *reply.Result) {
	if call.Status.Reason != v1alpha1.ReasonSessionEnded && call.Status.Reason != v1alpha1.ReasonSessionNotFound {
		return
	}
	if !s.conversations.forgetOwn(req.Session, call.Spec.SessionRef) {
		return
	}
	s.conversations.remove(req, client.ObjectKey{Namespace: call.Namespace, Name: call.Spec.SessionRef.Name})
	result.Output += "\n\nThe session of this conversation has ended, and its files are gone, except on volumes that list_environments " +
		"shows. The next call starts another session, which has only the files on those volumes."
}
