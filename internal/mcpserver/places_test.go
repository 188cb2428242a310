package mcpserver

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A request keeps its place until it is answered, which the limit of answers in memory depends on.
func TestAPlaceIsKeptUntilTheAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.operate(echo)
	used := make(chan int64, 2)
	s.server.mcp.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			result, err := next(ctx, method, req)
			if method == "tools/call" {
				used <- s.server.calls.Used() + s.server.queries.Used()
			}
			return result, err
		}
	})
	session := s.session(s.user("agent", runsCalls()), "/mcp", "")
	for _, tool := range []string{"run_command", "list_environments"} {
		use(t, session, tool, map[string]fields{"run_command": {"command": "x"}}[tool])
		if n := <-used; n != 1 {
			t.Errorf("%s: %d places before the answer", tool, n)
		}
		eventually(t, "free place", func() bool { return s.server.calls.Used()+s.server.queries.Used() == 0 })
	}
}
