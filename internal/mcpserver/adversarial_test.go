package mcpserver

import (
	"net/http"
	"strings"
	"testing"
)

// The server keeps serving, whatever an authenticated client sends.
func TestAdversarialRequestsDoNoHarm(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	token := s.user("agent")
	id := s.open(token)
	call := func(arguments string) string {
		return `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_command","arguments":` + arguments + `}}`
	}
	tool := func(name, arguments string) string { return strings.Replace(call(arguments), "run_command", name, 1) }
	deep := 1 << 20
	for name, body := range map[string]string{
		"deep lists":                call(strings.Repeat("[", deep) + strings.Repeat("]", deep)),
		"deep objects":              call(strings.Repeat(`{"a":`, deep/3) + "1" + strings.Repeat("}", deep/3)),
		"deep lists in an argument": tool("run_program", `{"program":"x","args":`+strings.Repeat("[", deep)+strings.Repeat("]", deep)+`}`),
		"deep lists as parameters":  `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` + strings.Repeat("[", deep) + strings.Repeat("]", deep) + `}`,
		"deep lists alone":          strings.Repeat("[", 2*deep),
		"deep meta":                 `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_command","_meta":{"a":` + strings.Repeat("[", deep) + strings.Repeat("]", deep) + `}}}`,
		"many calls at once":        "[" + strings.TrimSuffix(strings.Repeat(`{"jsonrpc":"2.0","method":"ping","id":1},`, 10000), ",") + "]",
		"a huge number":             call(`{"command":"x","timeout_seconds":` + strings.Repeat("9", deep) + `}`),
		"a huge id":                 `{"jsonrpc":"2.0","id":` + strings.Repeat("9", deep) + `,"method":"tools/list"}`,
		"halves of characters":      call(`{"command":"\ud800","env":{"\udfff":"\ud800"}}`),
		"a huge request_id":         call(`{"command":"x","request_id":"` + strings.Repeat("x", deep) + `"}`),
		"a huge path":               tool("read_file", `{"path":"`+strings.Repeat("../", deep/3)+`"}`),
		"a huge file":               tool("write_file", `{"path":"x","content":"`+strings.Repeat("x", 3*deep)+`"}`),
		"no base64":                 tool("write_file", `{"path":"x","content_base64":"`+strings.Repeat("!", deep)+`"}`),
		"a huge expression":         tool("search_files", `{"pattern":"`+strings.Repeat("(a*)*", deep/5)+`"}`),
		"a huge size":               tool("start_session", `{"workspace":"`+strings.Repeat("9", deep)+`"}`),
		"a huge name of a call":     tool("get_call", `{"call":"`+strings.Repeat("x", deep)+`"}`),
		"a path as a call":          tool("read_output", `{"call":"../../../api/v1/secrets"}`),
		"half a session":            tool("end_session", `{"session":"\ud800"}`),
		"many names":                call("{" + strings.Repeat(`"a":1,`, deep/2) + `"b":1}`),
	} {
		t.Run(name, func(t *testing.T) {
			status, _, answer := s.request(http.MethodPost, "/mcp", body, "Authorization", "Bearer "+token, sessionHeader, id)
			if status >= 500 || len(answer) > 64<<10 {
				t.Errorf("%d, %d bytes: %.300s", status, len(answer), answer)
			}
		})
	}
	if _, _, answer := s.request(http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":9,"method":"tools/list"}`, "Authorization", "Bearer "+token, sessionHeader, id); !strings.Contains(answer, "run_code") {
		t.Errorf("after that: %.300s", answer)
	}
	s.none()
}
