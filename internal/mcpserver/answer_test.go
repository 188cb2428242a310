package mcpserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An answer that its client doesn't read is given up, with both versions of HTTP.
func TestAnAnswerThatNobodyReads(t *testing.T) {
	t.Parallel()
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := make(chan error, 1)
			web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				timed := newTimedWriter(w, 20*time.Millisecond)
				defer timed.finish()
				for {
					if _, err := timed.Write(make([]byte, 1<<20)); err != nil {
						failed <- err
						return
					}
				}
			}))
			web.EnableHTTP2 = http2
			web.StartTLS()
			defer web.Close()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL, nil)
			must(t, err)
			answer, err := web.Client().Do(r)
			must(t, err)
			defer answer.Body.Close()
			select {
			case <-failed:
			case <-time.After(testTimeout):
				t.Error("the answer is still written")
			}
		})
	}
}

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
