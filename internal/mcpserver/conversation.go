package mcpserver

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
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
	sessions map[types.NamespacedName]*Requester
	// starting is held while the conversation's own session is created.
	starting sync.Mutex
	own      *v1alpha1.SessionReference
}

func newConversations(failed func(key types.NamespacedName, err error)) *conversations {
	return &conversations{failed: failed, clients: map[*mcp.ServerSession]*conversation{}}
}

// lasts reports whether a client's connection is a conversation. In versions of the protocol without sessions, each HTTP
// request has a connection of its own.
func lasts(req *mcp.CallToolRequest) bool {
	return req.Extra == nil || req.Extra.TokenInfo == nil || req.Session.ID() != ""
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
	added := &conversation{sessions: map[types.NamespacedName]*Requester{}}
	c.clients[client] = added
	c.watching.Go(func() {
		_ = client.Wait()
		c.end(client)
	})
	return added
}

// add has a session end with the conversation. It returns false if the conversation has too many sessions.
func (c *conversations) add(req *mcp.CallToolRequest, who *Requester, key types.NamespacedName) bool {
	if !lasts(req) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	added := c.locked(req.Session)
	if _, again := added.sessions[key]; !again && len(added.sessions) >= maxSessionsOfClient {
		return false
	}
	added.sessions[key] = who
	return true
}

// holds reports whether a session that was added still ends with the conversation. It doesn't if the conversation has ended
// meanwhile.
func (c *conversations) holds(req *mcp.CallToolRequest, key types.NamespacedName) bool {
	if !lasts(req) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.clients[req.Session]
	return found != nil && found.sessions[key] != nil
}

// remove forgets a session that has ended.
func (c *conversations) remove(req *mcp.CallToolRequest, key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.clients[req.Session]; found != nil {
		delete(found.sessions, key)
	}
}

// end ends the sessions of a conversation.
func (c *conversations) end(client *mcp.ServerSession) {
	c.mu.Lock()
	var sessions map[types.NamespacedName]*Requester
	if gone := c.clients[client]; gone != nil {
		sessions = maps.Clone(gone.sessions)
	}
	delete(c.clients, client)
	c.mu.Unlock()
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
func endForSure(ctx context.Context, who *Requester, key types.NamespacedName) error {
	for {
		err := requestEnd(ctx, who, key)
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case ctx.Err() != nil, !isResponseLost(err) && !isBusy(err):
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(cancelRetry):
		}
	}
}

// joinConversation has a call that names neither a session nor an environment run in the session of its conversation. The first
// such call starts it.
func (s *Server) joinConversation(ctx context.Context, req *mcp.CallToolRequest, who *Requester, call *v1alpha1.ToolCall) (joined bool, err error) {
	if !s.options.SessionPerClient || call.Spec.SessionRef != nil || call.Spec.EnvironmentRef != nil {
		return false, nil
	}
	c := s.conversations.of(req.Session)
	c.starting.Lock()
	defer c.starting.Unlock()
	if c.own == nil {
		session := &v1alpha1.ToolSession{Spec: v1alpha1.ToolSessionSpec{IdleTimeoutSeconds: new(int32(conversationIdleSeconds))}}
		session.Namespace, session.Name = who.Namespace, namePrefix+utilrand.String(nameLength)
		created, err := s.createSession(ctx, req, who, session, false)
		if err != nil {
			return false, err
		}
		c.own = &v1alpha1.SessionReference{Name: created.Name, UID: string(created.UID)}
	}
	call.Spec.SessionRef = c.own.DeepCopy()
	return true, nil
}

// leaveConversation forgets the session of a conversation if it has ended, so that the next call starts another one. The
// model has to know that the files are gone.
func (s *Server) leaveConversation(req *mcp.CallToolRequest, call *v1alpha1.ToolCall, result *Result) {
	if call.Status.Reason != v1alpha1.ReasonSessionEnded && call.Status.Reason != v1alpha1.ReasonSessionNotFound {
		return
	}
	c := s.conversations.of(req.Session)
	c.starting.Lock()
	defer c.starting.Unlock()
	if c.own != nil && *c.own == *call.Spec.SessionRef {
		c.own = nil
		s.conversations.remove(req, client.ObjectKey{Namespace: call.Namespace, Name: call.Spec.SessionRef.Name})
	}
	result.Output += "\n\nThe session of this conversation has ended, and its files are gone. The next call starts another session, without files."
}
