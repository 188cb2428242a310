package mcpserver

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
)

// calls makes and follows tool calls; follow.Clients does.
type calls interface {
	Create(ctx context.Context, call *v1alpha1.ToolCall) (*v1alpha1.ToolCall, error)
	Wait(ctx context.Context, key types.NamespacedName, w follow.Watcher) (*v1alpha1.ToolCall, error)
	Cancel(ctx context.Context, key types.NamespacedName) error
}

// lister lists objects; a client.Client does.
type lister interface {
	List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error
}

// Caller is on whose behalf, and where, requests are served.
type Caller struct {
	// Calls and Environments act with the caller's own credentials.
	Calls        calls
	Environments lister
	// Namespace of the caller's calls.
	Namespace string
	// User is a name for logs and limits; it grants nothing.
	User string
}

// Keys of what the HTTP side tells the tools about a request.
const (
	extraCaller  = "toolcall.dev/caller"
	extraRequest = "toolcall.dev/request"
)

// callerOf finds the caller of a request: the one fixed for all, or the one that was authenticated with it.
func (s *Server) callerOf(req *mcp.CallToolRequest) (*Caller, error) {
	if s.options.Caller != nil {
		return s.options.Caller, nil
	}
	if req.Extra != nil && req.Extra.TokenInfo != nil {
		if caller, ok := req.Extra.TokenInfo.Extra[extraCaller].(*Caller); ok {
			return caller, nil
		}
	}
	return nil, errors.New("the request has no authenticated caller")
}

// lifetime is the context of one call: it ends when the client cancels the request, when the HTTP connection that
// waits for the answer is lost, when the session is ended, and when the server stops.
func (s *Server) lifetime(ctx context.Context, req *mcp.CallToolRequest) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stops := []func() bool{context.AfterFunc(s.stopping, cancel)}
	if req.Extra != nil && req.Extra.TokenInfo != nil {
		if request, ok := req.Extra.TokenInfo.Extra[extraRequest].(context.Context); ok {
			stops = append(stops, context.AfterFunc(request, cancel))
		}
	}
	forget := s.inFlight.add(req.Session.ID(), cancel)
	return ctx, func() {
		forget()
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}
