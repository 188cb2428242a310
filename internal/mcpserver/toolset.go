package mcpserver

import (
	"context"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/limits"
)

// toolFunc carries out one use of a tool. Its errors become results.
type toolFunc func(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester) (*Result, error)

// tool is one tool of the server.
type tool struct {
	define func(*facts) *mcp.Tool
	run    toolFunc
	// creates says that the tool creates a call.
	creates bool
}

// toolset lists the tools.
func (s *Server) toolset() []tool {
	return []tool{
		{runCommandTool, s.create(runCommandSpec), true},
		{runProgramTool, s.create(runProgramSpec), true},
		{runCodeTool, s.create(runCodeSpec), true},
		{execTool, s.create(execSpec), true},
		{readFileTool, s.create(readFileSpec), true},
		{writeFileTool, s.create(writeFileSpec), true},
		{editFileTool, s.create(editFileSpec), true},
		{listFilesTool, s.create(listFilesSpec), true},
		{searchFilesTool, s.create(searchFilesSpec), true},
		{listEnvironmentsTool, s.query(s.listEnvironments), false},
		{startSessionTool, s.query(s.startSession), false},
		{endSessionTool, s.query(s.endSession), false},
		{getCallTool, s.query(getCall), false},
		{cancelCallTool, s.query(cancelCall), false},
		{readOutputTool, s.query(readOutput), false},
	}
}

// addTools registers the tools. Their descriptions are completed for each client that lists them.
func (s *Server) addTools() {
	for _, t := range s.toolset() {
		definition := t.define(&facts{})
		s.mcp.AddTool(definition, s.tracked(s.handler(definition.Name, t)))
	}
	s.mcp.AddReceivingMiddleware(s.describeTools)
}

// handler answers the uses of a tool. Every outcome is a result; only a request without a requester is an error.
func (s *Server) handler(name string, t tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
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
			result = resultOfError(who, err)
		}
		s.options.Metrics.observe(name, outcomeOf(result, t.creates), time.Since(started))
		s.options.Log.Info("answered a tool call", "tool", name, "user", who.User, "namespace", who.Namespace,
			"call", result.Call, "reason", result.Reason)
		return result.encode()
	}
}

// query bounds the tools that create no call. Their bound is apart from that of running calls, so that a user who has reached
// that one can still cancel calls.
func (s *Server) query(run toolFunc) toolFunc {
	return func(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester) (*Result, error) {
		place, err := reserve(s.queries, who)
		if err != nil {
			return nil, err
		}
		// Over HTTP, an answer takes up memory until its client has read it.
		defer afterAnswer(req, place.Release)
		// Some of them wait, and have no output to send.
		live := startProgress(ctx, req)
		defer live.stop()
		return run(ctx, req, who)
	}
}

// reserve takes a place for a request of a user.
func reserve(l *limits.Limit, who *identity.Requester) (*fair.Share[string], error) {
	place, ok := l.Reserve(who.Principal(), 1)
	if !ok {
		return nil, &failure{reason: reasonTooManyCalls, message: fmt.Sprintf(
			"too many calls are running (limits: %d in total, %d for one tenant, %d for one user): wait until others have finished",
			l.Total, l.PerTenant, l.PerUser)}
	}
	return place, nil
}
