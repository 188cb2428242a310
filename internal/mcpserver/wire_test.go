package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/reply"
)

// hostileTexts would end a message, a line or an event early, or control a terminal, if they were sent as they are.
var hostileTexts = []string{
	"\x1b]0;title\x07\x1b[2J", "line\nline\r\nline\r", "\x00\x01\x1f\x7f", "\u009b31m\u0085", "\u202e\u2066\u200f", "\u2028\u2029",
	"data: x\n\nevent: end\ndata: {}\n\n", `{"jsonrpc":"2.0","id":2,"result":{}}` + "\n", `"\"\\u0000`, "</script><!--", "\ufeff\ufffd\U000e0041",
}

// finishHostile finishes a call with a text in every field that a client sees.
func finishHostile(text string) func(*v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
	return func(*v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		s := finishedStatus(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit)
		s.Message, s.Stdout, s.Stderr, s.Output, s.ExitCode = text, text, text, text, ptr.To(int32(1))
		s.Environment = &v1alpha1.ResolvedEnvironment{Name: text}
		return s
	}
}

// expectHarmless expects text of the protocol without characters that control a terminal or a parser of lines.
func expectHarmless(t *testing.T, raw string) {
	t.Helper()
	if !utf8.ValidString(raw) {
		t.Errorf("not UTF-8: %q", raw)
	}
	for _, r := range raw {
		if r != '\n' && r < 0x80 && unicode.IsControl(r) && r != 0x7f {
			t.Fatalf("%U is sent in %q", r, raw)
		}
	}
}

// expectSame expects the texts of a call in an answer, unchanged.
func expectSame(t *testing.T, message json.RawMessage, text string) {
	t.Helper()
	var answer struct {
		Result struct {
			Content []struct{ Text string }
			Meta    map[string]reply.Result `json:"_meta"`
		}
	}
	must(t, json.Unmarshal(message, &answer))
	r := answer.Result.Meta[reply.MetaKey]
	if len(answer.Result.Content) != 1 || !strings.HasPrefix(answer.Result.Content[0].Text, strings.TrimRight(text, "\n")+"\n\n[reason: NonZeroExit, exit_code: 1, ") || r.Environment != text {
		t.Errorf("%q arrived as %+v", text, answer.Result)
	}
}

const execMessage = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"_meta":{"toolcall.dev/result":true},"name":"run_command","arguments":{"command":"x"}}}`

// Over standard input and output, each message is one line, whatever a command wrote.
func TestHostileOutputOverStdio(t *testing.T) {
	t.Parallel()
	for n, text := range hostileTexts {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.operate(finishHostile(text))
			toServer, input := io.Pipe()
			output, fromServer := io.Pipe()
			served := make(chan error, 1)
			server := newTestServer(t, f.local(), 8)
			go func() {
				served <- server.Run(context.Background(), &mcp.IOTransport{Reader: toServer, Writer: fromServer})
			}()
			lines := bufio.NewReader(output)
			exchange := func(message string) string {
				t.Helper()
				_, err := io.WriteString(input, message+"\n")
				must(t, err)
				line, err := lines.ReadString('\n')
				must(t, err)
				return line
			}
			exchange(initialize)
			_, err := io.WriteString(input, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
			must(t, err)
			line := exchange(execMessage)
			expectHarmless(t, line)
			expectSame(t, json.RawMessage(line), text)
			must(t, input.Close())
			must(t, <-served)
		})
	}
}

// Over HTTP, each message is one event, whatever a command wrote.
func TestHostileOutputOverHTTP(t *testing.T) {
	t.Parallel()
	for n, text := range hostileTexts {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.operate(finishHostile(text))
			token := s.user("agent", runsCalls())
			_, _, body := s.request(http.MethodPost, "/mcp", execMessage, "Authorization", "Bearer "+token, sessionHeader, s.open(token))
			expectHarmless(t, body)
			events := 0
			for line := range strings.Lines(body) {
				if data, ok := strings.CutPrefix(line, "data: "); ok && strings.Contains(data, `"result"`) {
					events++
					expectSame(t, json.RawMessage(data), text)
				}
			}
			if events != 1 {
				t.Errorf("%d answers in %q", events, body)
			}
		})
	}
}

// Errors that repeat what a client sent are harmless too.
func TestHostileRequestsAreRepeatedHarmlessly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	token := s.user("agent")
	for _, path := range []string{"/mcp/%1b%5b31m", "/mcp/%c2%9b31m", "/mcp/a%0ab"} {
		_, _, body := s.request(http.MethodPost, path, initialize, "Authorization", "Bearer "+token)
		expectHarmless(t, body)
		for _, r := range body {
			if unicode.Is(unicode.Cc, r) && r != '\n' {
				t.Errorf("%s: %U in %q", path, r, body)
			}
		}
	}
}
