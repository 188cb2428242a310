package mcpserver

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/tools"
)

// extraSender is the key under which the HTTP endpoint passes the sender of a request to the tools.
const extraSender = "toolcall.dev/sender"

// sender is the authenticated sender of an HTTP request, in the namespace of the request.
type sender struct {
	requester *identity.Requester
	// view is which tools it sees.
	view tools.View
	// request ends once the request has been answered, or its connection is lost.
	request context.Context
}

// senderOf returns the sender of a request, nil if the client isn't connected over HTTP.
func senderOf(extra *mcp.RequestExtra) *sender {
	if extra == nil || extra.TokenInfo == nil {
		return nil
	}
	from, _ := extra.TokenInfo.Extra[extraSender].(*sender)
	return from
}

// requesterOf returns the requester of a request: the one of the options, or the authenticated sender.
func (s *Server) requesterOf(extra *mcp.RequestExtra) (*identity.Requester, error) {
	if s.options.Requester != nil {
		return s.options.Requester, nil
	}
	if from := senderOf(extra); from != nil {
		return from.requester, nil
	}
	return nil, errors.New("the request is not authenticated")
}

// viewOf returns which tools the sender of a request sees.
func (s *Server) viewOf(extra *mcp.RequestExtra) tools.View {
	if from := senderOf(extra); from != nil {
		return from.view
	}
	return s.options.View
}

// enterQuery finds out on whose behalf a request about a task acts, and takes a place for it, which the function gives back.
func (s *Server) enterQuery(extra *mcp.RequestExtra) (*identity.Requester, func(), error) {
	who, err := s.requesterOf(extra)
	if err != nil {
		return nil, nil, err
	}
	place, err := s.reserve(s.queries, who)
	if err != nil {
		return nil, nil, err
	}
	return who, func() { afterAnswer(extra, place.Release) }, nil
}

// afterAnswer calls a function once a request is answered, which without HTTP is at once.
func afterAnswer(extra *mcp.RequestExtra, do func()) {
	if from := senderOf(extra); from != nil {
		context.AfterFunc(from.request, do)
		return
	}
	do()
}

// toolContext returns the context of one use of a tool. It ends when the client cancels the request, when the HTTP connection
// that waits for the answer is lost, when the session ends, and when the server stops.
func (s *Server) toolContext(ctx context.Context, req *mcp.CallToolRequest) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	ends := []context.Context{s.stopping}
	if from := senderOf(req.Extra); from != nil {
		ends = append(ends, from.request)
	}
	s.conversations.change(req.Session, func(of *conversation) { ends = append(ends, of.ending) })
	for _, end := range ends {
		stop := context.AfterFunc(end, cancel)
		context.AfterFunc(ctx, func() { stop() })
	}
	return ctx, cancel
}
