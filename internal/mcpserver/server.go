package mcpserver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// instructions are told to every client when it connects.
const instructions = "Tools of this server run commands and code in pods on Kubernetes, each call in a fresh one: files " +
	"don't last from one call to the next. A result with isError has a reason and a message that says what would be " +
	"accepted; repeat a call only if retrySafe is true or repeating it does no harm."

// Options say whom a server serves and how much it takes on.
type Options struct {
	// Caller is the one whom all requests come from; nil over HTTP, where each request brings its own.
	Caller *Caller
	// MaxCalls and MaxCallsPerUser bound the calls that run at the same time.
	MaxCalls, MaxCallsPerUser int
	// Version of this program.
	Version string
	Log     *slog.Logger
	Metrics *Metrics
}

// Server offers the tools. It serves any number of sessions.
type Server struct {
	options  Options
	mcp      *mcp.Server
	quota    quota
	inFlight inFlight

	stopping context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// NewServer makes a server with its tools.
func NewServer(o Options) *Server {
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	s := &Server{options: o, quota: quota{total: o.MaxCalls, each: o.MaxCallsPerUser}}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.mcp = mcp.NewServer(&mcp.Implementation{
		Name: "toolcall", Title: "Tool calls on Kubernetes", Version: o.Version,
	}, &mcp.ServerOptions{
		Instructions: instructions,
		Logger:       o.Log,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	s.mcp.AddTool(execTool(), s.counted(s.exec))
	s.mcp.AddTool(runCodeTool(), s.counted(s.runCode))
	s.mcp.AddTool(listEnvironmentsTool(), s.counted(s.listEnvironments))
	return s
}

// counted keeps count of a tool's invocations, so that the server can wait for them before it ends.
func (s *Server) counted(tool mcp.ToolHandler) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.running.Add(1)
		defer s.running.Done()
		return tool(ctx, req)
	}
}

// Stop cancels every call that runs. They are asked to stop, then answered.
func (s *Server) Stop() { s.stop() }

// Wait waits until no call is being served, at most for the given time.
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
		return errors.New("some calls were still being cancelled when the time for that was over")
	}
}

// RunStdio serves one client over standard input and output until it closes them or the context ends; calls that
// still run then are cancelled.
func (s *Server) RunStdio(ctx context.Context) error {
	return s.Run(ctx, &mcp.StdioTransport{})
}

// Run serves one client over a transport.
func (s *Server) Run(ctx context.Context, t mcp.Transport) error {
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	err := s.mcp.Run(ctx, t)
	s.Stop()
	if waited := s.Wait(cancelTimeout + endTimeout); waited != nil {
		return waited
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}
