package mcpserver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// instructions are sent to every client when it connects.
const instructions = "The tools of this server run commands and code in pods on Kubernetes. Each call runs in a new pod: files " +
	"don't last from one call to the next. A result with isError has a reason and a message that says what is allowed. " +
	"Repeat a call only if retrySafe is true, or if repeating it does no harm."

// Options configure a server.
type Options struct {
	// Requester sends all requests. It is nil over HTTP, where each request has its own.
	Requester *Requester
	// MaxCalls, MaxCallsPerTenant and MaxCallsPerUser bound the calls that run at the same time. A MaxCallsPerTenant of
	// 0 means that tenants have no bound of their own.
	MaxCalls, MaxCallsPerTenant, MaxCallsPerUser int
	// Version of this program.
	Version string
	Log     *slog.Logger
	Metrics *Metrics
}

// Server offers the tools to any number of sessions.
type Server struct {
	options  Options
	mcp      *mcp.Server
	calls    *limit
	inFlight inFlight

	stopping context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// NewServer returns a server with its tools.
func NewServer(o Options) *Server {
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	s := &Server{options: o, calls: newLimit(o.MaxCalls, o.MaxCallsPerTenant, o.MaxCallsPerUser)}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.mcp = mcp.NewServer(&mcp.Implementation{
		Name: "toolcall", Title: "Tool calls on Kubernetes", Version: o.Version,
	}, &mcp.ServerOptions{
		Instructions: instructions,
		Logger:       o.Log,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	s.mcp.AddTool(execTool(), s.tracked(s.exec))
	s.mcp.AddTool(runCodeTool(), s.tracked(s.runCode))
	s.mcp.AddTool(listEnvironmentsTool(), s.tracked(s.listEnvironments))
	return s
}

// tracked counts the invocations of a tool, so that Wait can wait for them. Over HTTP an invocation counts until its
// response has been written: a session that is closed before discards the response.
func (s *Server) tracked(tool mcp.ToolHandler) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.running.Add(1)
		defer s.running.Done()
		if request := requestContext(req); request != nil {
			s.running.Add(1)
			context.AfterFunc(request, s.running.Done)
		}
		return tool(ctx, req)
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

// Close cancels all running calls, waits until they have finished, and closes all sessions.
func (s *Server) Close() error {
	s.Stop()
	err := s.Wait(stopTimeout)
	for session := range s.mcp.Sessions() {
		_ = session.Close()
	}
	return err
}

// RunStdio serves one client over standard input and output, until the client closes them or the context ends. It
// cancels the calls that still run.
func (s *Server) RunStdio(ctx context.Context) error {
	return s.Run(ctx, &mcp.StdioTransport{})
}

// Run serves one client over a transport.
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
