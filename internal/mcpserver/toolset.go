package mcpserver

import (
	"context"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/mcpserver/tools"
)

// toolFunc carries out one use of a tool. Its errors become results.
type toolFunc func(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester) (*reply.Result, error)

// tool is one tool of the server.
type tool struct {
	tools.Tool
	run toolFunc
	// creates says that the tool creates a call.
	creates bool
}

// toolset lists the tools.
func (s *Server) toolset() []tool {
	return []tool{
		s.create(tools.RunCommand),
		s.create(tools.RunProgram),
		s.create(tools.RunCode),
		s.create(tools.ReadFile),
		s.create(tools.WriteFile),
		s.create(tools.EditFile),
		s.create(tools.ListFiles),
		s.create(tools.SearchFiles),
		query(s, tools.ListEnvironments, s.listEnvironments),
		query(s, tools.StartSession, s.startSession),
		query(s, tools.EndSession, s.endSession),
		query(s, tools.GetCall, getCall),
		query(s, tools.CancelCall, cancelCall),
		query(s, tools.ReadOutput, s.readOutput),
	}
}

// addTools registers the tools. Their descriptions are completed for each client that lists them.
func (s *Server) addTools() {
	s.tools = map[string]tool{}
	for _, t := range s.toolset() {
		s.tools[t.Name] = t
		s.mcp.AddTool(t.Define(&tools.Facts{}), s.handler(t))
	}
	s.mcp.AddReceivingMiddleware(s.describeTools)
}

// handler answers the uses of a tool. Every outcome is a result; only a request without a requester is an error. Wait waits for the uses:
// over HTTP until the response has been written, since a session that is closed before discards it.
func (s *Server) handler(t tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.running.Add(2)
		defer s.running.Done()
		afterAnswer(req.Extra, s.running.Done)
		who, err := s.requesterOf(req.Extra)
		if err != nil {
			return nil, err
		}
		s.conversations.renew(req.Session, who)
		ctx, end := s.toolContext(ctx, req)
		defer end()
		started := time.Now()
		result, err := t.run(ctx, req, who)
		if err != nil {
			result = resultOfError(who, err, t.ReadOnly())
		}
		s.options.Metrics.observe(t.Name, outcomeOf(result, t.creates), time.Since(started))
		s.options.Log.Info("answered a tool call", "tool", t.Name, "user", who.User, "namespace", who.Namespace,
			"call", result.Call, "reason", result.Reason)
		return result.Encode(req.Params.Meta, s.options.MaxAnswer)
	}
}

// create completes a tool that creates a call and answers with the call's outcome.
func (s *Server) create(t tools.Typed[*tools.CallRequest]) tool {
	return tool{Tool: t.Tool, creates: true, run: bounded(s, s.calls, t, s.run)}
}

// query completes a tool that creates no call. The bound of these is apart from that of running calls, so that a user who has reached
// that one can still cancel calls.
func query[T any](s *Server, t tools.Typed[T], run typedFunc[T]) tool {
	// Some of them wait, and have no output to send.
	alive := func(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester, value T) (*reply.Result, error) {
		live := startProgress(ctx, req)
		defer live.stop()
		return run(ctx, req, who, value)
	}
	return tool{Tool: t.Tool, run: bounded(s, s.queries, t, alive)}
}

// typedFunc carries out one use of a tool whose arguments mean a T.
type typedFunc[T any] func(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester, value T) (*reply.Result, error)

// bounded reads the arguments of one use of a tool, and carries it out where there is a place for it.
func bounded[T any](s *Server, places *fair.Counter[string], t tools.Typed[T], run typedFunc[T]) toolFunc {
	return func(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester) (*reply.Result, error) {
		value, err := t.Parse(req.Params.Arguments)
		if err != nil {
			return nil, &failure{reason: v1alpha1.ReasonInvalidArguments, message: err.Error()}
		}
		place, err := s.reserve(places, who)
		if err != nil {
			return nil, err
		}
		// Over HTTP, an answer takes up memory until its client has read it.
		defer afterAnswer(req.Extra, place.Release)
		return run(ctx, req, who, value)
	}
}

// reserve takes a place for a request of a user.
func (s *Server) reserve(of *fair.Counter[string], who *identity.Requester) (*fair.Share[string], error) {
	place, ok := of.Acquire(1, who.Tenant, who.User)
	if !ok {
		return nil, &failure{reason: reply.ReasonTooManyCalls, message: fmt.Sprintf(
			"too many calls are running (limits: %d in total, %d for one tenant, %d for one user): wait until others have finished",
			s.options.MaxCalls, s.options.MaxCallsPerTenant, s.options.MaxCallsPerUser)}
	}
	return place, nil
}
