package mcpserver

import (
	"context"
	"fmt"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/limits"
)

// toolFunc carries out one use of a tool. Its errors become results.
type toolFunc func(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester) (*Result, error)

// tool is one tool of the server.
type tool struct {
	name, title string
	// description says of the files what is true for the client.
	description func(*facts) string
	// input and output are the schemas, which are for clients: the code that reads arguments checks them, with messages that a model
	// can act on.
	input, output *jsonschema.Schema
	hints         *mcp.ToolAnnotations
	run           toolFunc
	// creates says that the tool creates a call.
	creates bool
}

// define returns the tool as clients see it.
func (t tool) define(f *facts) *mcp.Tool {
	return &mcp.Tool{
		Name: t.name, Title: t.title, Description: t.description(f), InputSchema: t.input, OutputSchema: t.output, Annotations: t.hints,
	}
}

// toolset lists the tools.
func (s *Server) toolset() []tool {
	return []tool{
		s.create(runCommandTool, runCommandSpec),
		s.create(runProgramTool, runProgramSpec),
		s.create(runCodeTool, runCodeSpec),
		s.create(readFileTool, readFileSpec),
		s.create(writeFileTool, writeFileSpec),
		s.create(editFileTool, editFileSpec),
		s.create(listFilesTool, listFilesSpec),
		s.create(searchFilesTool, searchFilesSpec),
		query(s, listEnvironmentsTool, noArguments, s.listEnvironments),
		query(s, startSessionTool, startSessionSpec, s.startSession),
		query(s, endSessionTool, endSessionSpec, s.endSession),
		query(s, getCallTool, getCallSpec, getCall),
		query(s, cancelCallTool, readCallName, cancelCall),
		query(s, readOutputTool, readOutputSpec, readOutput),
	}
}

// addTools registers the tools. Their descriptions are completed for each client that lists them.
func (s *Server) addTools() {
	s.tools = map[string]tool{}
	for _, t := range s.toolset() {
		s.tools[t.name] = t
		s.mcp.AddTool(t.define(&facts{}), s.handler(t))
	}
	s.mcp.AddReceivingMiddleware(s.describeTools)
}

// handler answers the uses of a tool. Every outcome is a result; only a request without a requester is an error. Wait waits for the uses:
// over HTTP until the response has been written, since a session that is closed before discards it.
func (s *Server) handler(t tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.running.Add(2)
		defer s.running.Done()
		afterAnswer(req, s.running.Done)
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
		s.options.Metrics.observe(t.name, outcomeOf(result, t.creates), time.Since(started))
		s.options.Log.Info("answered a tool call", "tool", t.name, "user", who.User, "namespace", who.Namespace,
			"call", result.Call, "reason", result.Reason)
		return result.encode()
	}
}

// query completes a tool that creates no call. The bound of these is apart from that of running calls, so that a user who has reached
// that one can still cancel calls.
func query[T any](s *Server, t tool, read func(*arguments) T, run func(context.Context, *mcp.CallToolRequest, *identity.Requester, T) (*Result, error)) tool {
	t.input = declared(read).schema
	t.run = func(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester) (*Result, error) {
		place, err := reserve(s.queries, who)
		if err != nil {
			return nil, err
		}
		// Over HTTP, an answer takes up memory until its client has read it.
		defer afterAnswer(req, place.Release)
		// Some of them wait, and have no output to send.
		live := startProgress(ctx, req)
		defer live.stop()
		value, err := parse(req.Params.Arguments, read)
		if err != nil {
			return nil, err
		}
		return run(ctx, req, who, value)
	}
	return t
}

// noArguments reads the arguments of a tool that has none.
func noArguments(*arguments) struct{} { return struct{}{} }

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
