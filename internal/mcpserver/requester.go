package mcpserver

import (
	"context"
	"errors"
	"io"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	outputclient "toolcall.dev/operator/internal/output/client"
)

// calls creates, follows and cancels tool calls. follow.Clients implements it.
type calls interface {
	Create(ctx context.Context, call *v1alpha1.ToolCall) (*v1alpha1.ToolCall, error)
	Wait(ctx context.Context, key types.NamespacedName, w follow.Watcher) (*v1alpha1.ToolCall, error)
	CancelExactly(ctx context.Context, key types.NamespacedName, uid types.UID) error
}

// sessionStarter starts sessions of calls. follow.Clients implements it.
type sessionStarter interface {
	CreateSession(ctx context.Context, session *v1alpha1.ToolSession) (*v1alpha1.ToolSession, error)
	WaitSession(ctx context.Context, session *v1alpha1.ToolSession, w follow.SessionWatcher) (*v1alpha1.ToolSession, error)
}

// objects reads and changes objects. client.Client implements it.
type objects interface {
	Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error
	List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error
	Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error
}

// files reads files of sessions. outputclient.Client implements it.
type files interface {
	Download(ctx context.Context, f outputclient.File, to io.Writer, progress outputclient.Progress) error
}

// Requester is the user that a request acts for, and the namespace that it acts in.
type Requester struct {
	// Calls, Sessions, Objects, Output and Files use the requester's own credentials.
	Calls    calls
	Sessions sessionStarter
	Objects  objects
	Output   follow.OutputReader
	Files    files
	// Namespace of the requester's calls.
	Namespace string
	// User and Tenant are names for logs and limits. They grant nothing.
	User, Tenant string
	// identify returns the name and the UID of the user as the API server knows it.
	identify func(ctx context.Context) (username, uid string, err error)
}

func (r *Requester) principal() principal { return principal{user: r.User, tenant: r.Tenant} }

// Keys of the values that the HTTP endpoint passes to the tools with a request.
const (
	extraRequester = "toolcall.dev/requester"
	extraContext   = "toolcall.dev/context"
)

// requesterOf returns the requester of a request: the one of the options, or the authenticated sender.
func (s *Server) requesterOf(extra *mcp.RequestExtra) (*Requester, error) {
	if s.options.Requester != nil {
		return s.options.Requester, nil
	}
	if requester := requesterIn(extra); requester != nil {
		return requester, nil
	}
	return nil, errors.New("the request is not authenticated")
}

// requesterIn returns the authenticated sender of a request, nil if there is none.
func requesterIn(extra *mcp.RequestExtra) *Requester {
	if extra == nil || extra.TokenInfo == nil {
		return nil
	}
	requester, _ := extra.TokenInfo.Extra[extraRequester].(*Requester)
	return requester
}

// requestContext returns the context of the HTTP request that waits for the answer, which ends once it has been
// answered. It is nil if the client isn't connected over HTTP.
func requestContext(req *mcp.CallToolRequest) context.Context {
	if req.Extra == nil || req.Extra.TokenInfo == nil {
		return nil
	}
	request, _ := req.Extra.TokenInfo.Extra[extraContext].(context.Context)
	return request
}

// toolContext returns the context of one use of a tool. It ends when the client cancels the request, when the HTTP connection
// that waits for the answer is lost, when the session ends, and when the server stops.
func (s *Server) toolContext(ctx context.Context, req *mcp.CallToolRequest) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stops := []func() bool{context.AfterFunc(s.stopping, cancel)}
	if request := requestContext(req); request != nil {
		stops = append(stops, context.AfterFunc(request, cancel))
	}
	remove := func() {}
	// Without sessions, all requests have the same, empty id.
	if id := req.Session.ID(); id != "" {
		remove = s.inFlight.add(id, cancel)
	}
	return ctx, func() {
		remove()
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}
