package mcpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/mcpserver/tasks"
	"toolcall.dev/operator/internal/mcpserver/tools"
)

// instructions are sent to every client when it connects. What lasts from call to call depends on the environment, and the
// descriptions of the tools say it.
const (
	instructions = "The tools of this server run commands and code, and read and write files, in pods on Kubernetes. %s The descriptions " +
		"of the tools say which files last. A result with isError has a reason, and its output says what is allowed. Repeat a call only if " +
		"retry_safe is true, if repeating it does no harm, or with the same request_id."
	instructionsApart = "Each call runs in a new pod unless it names a session; start_session starts one, whose calls share files."
	instructionsJoint = "The calls of this conversation share a session, and so files, unless they name another session or an environment."
)

// instructions are those for the server's clients.
func (o *Options) instructions() string {
	if o.SessionPerClient {
		return fmt.Sprintf(instructions, instructionsJoint)
	}
	return fmt.Sprintf(instructions, instructionsApart)
}

// Options configure a server.
type Options struct {
	// Requester sends all requests. It is nil over HTTP, where each request has its own.
	Requester *identity.Requester
	// MaxCalls, MaxCallsPerTenant and MaxCallsPerUser bound the calls that run at the same time. A MaxCallsPerTenant of
	// 0 means that tenants have no bound of their own.
	MaxCalls, MaxCallsPerTenant, MaxCallsPerUser int
	// SessionPerClient has the calls of one client run in one session unless they name a session or an environment. It needs a
	// Requester: over HTTP, clients start sessions themselves.
	SessionPerClient bool
	// View is which tools clients see over standard input and output; all if empty. Over HTTP, the path says it.
	View tools.View
	// MaxAnswer is how many characters an answer has at most, reply.DefaultLimit if 0.
	MaxAnswer int
	// Version of this program.
	Version string
	Log     *slog.Logger
	Metrics *Metrics
	// Traces makes spans of requests; nil for none.
	Traces trace.TracerProvider
}

// Server offers the tools to any number of sessions.
type Server struct {
	options Options
	mcp     *mcp.Server
	tools   map[string]tool
	tracer  trace.Tracer
	// calls bounds running calls, queries the uses of other tools.
	calls, queries *fair.Counter[string]
	// images bounds the memory of answers with images.
	images *fair.Counter[string]
	// lists are the lists of environments that are read.
	lists         *fair.Turns[string]
	conversations *conversations
	tasks         *tasks.Service

	stopping context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// NewServer returns a server with its tools.
func NewServer(o Options) *Server {
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	o.View, o.MaxAnswer, o.MaxCallsPerTenant = cmp.Or(o.View, tools.All), cmp.Or(o.MaxAnswer, reply.DefaultLimit), cmp.Or(o.MaxCallsPerTenant, o.MaxCalls)
	s := &Server{
		options: o, tracer: newTracer(o.Traces), calls: newCounter(o.MaxCalls, o.MaxCallsPerTenant, o.MaxCallsPerUser),
		queries: newCounter(o.MaxCalls, o.MaxCallsPerTenant, o.MaxCallsPerUser),
		images:  newCounter(maxImageBytes, maxImageBytesPerTenant, maxImageBytesPerUser),
		// Not more can wait than the limit of queries lets in.
		lists: fair.NewTurns[string](maxLists, maxListsPerTenant),
	}
	s.conversations = newConversations(func(key types.NamespacedName, err error) {
		o.Log.Warn("a session was not ended, and ends when it is idle", "session", key.String(), "error", err.Error())
	})
	s.stopping, s.stop = context.WithCancel(context.Background())
	capabilities := &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}
	capabilities.AddExtension(tasks.Extension, nil)
	s.mcp = mcp.NewServer(&mcp.Implementation{
		Name: "toolcall", Title: "Tool calls on Kubernetes", Version: o.Version,
	}, &mcp.ServerOptions{
		Instructions: o.instructions(),
		Logger:       o.Log,
		Capabilities: capabilities,
		// Descriptions depend on who lists the tools, and on the namespace.
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			c.CacheScope, c.TTLMs = "private", int(listLasts.Milliseconds())
		},
	})
	s.addTools()
	s.tasks = &tasks.Service{After: tasks.After, Enter: s.enterQuery, Answer: s.answerOf, Inputs: tasks.Approvals{}}
	s.tasks.Register(s.mcp)
	s.mcp.AddReceivingMiddleware(onlyDeclared, s.trace)
	return s
}

// newCounter bounds what is in use: in total, by one tenant and by one user.
func newCounter(total, perTenant, perUser int) *fair.Counter[string] {
	return fair.NewCounter[string](int64(total), int64(perTenant), int64(perUser))
}

// onlyDeclared rejects the methods of what the server doesn't offer: the SDK answers them with empty lists.
func onlyDeclared(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch group, _, _ := strings.Cut(method, "/"); group {
		case "prompts", "resources", "completion", "logging":
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("%q: this server has only tools", method)}
		}
		return next(ctx, method, req)
	}
}

// Stop cancels all running calls. Their requests still get an answer.
func (s *Server) Stop() { s.stop() }

// Wait waits until no tool runs and all are answered, for at most the given time.
func (s *Server) Wait(limit time.Duration) error {
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(limit):
		return errors.New("some calls were not cancelled in time")
	}
}

// Close cancels all running calls, waits until they have finished, closes all connections, and ends the sessions of calls that
// end with them.
func (s *Server) Close() error {
	s.Stop()
	err := s.Wait(stopTimeout)
	for session := range s.mcp.Sessions() {
		_ = session.Close()
	}
	s.conversations.watching.Wait()
	return err
}

// Run serves one client over a transport, until the client closes it or the context ends. It cancels the calls that still run.
func (s *Server) Run(ctx context.Context, t mcp.Transport) error {
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	err := s.mcp.Run(ctx, t)
	if closeErr := s.Close(); closeErr != nil {
		return closeErr
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}
