package mcpserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"toolcall.dev/operator/api/v1alpha1"
)

// For another user, a session is the same as one that doesn't exist.
func TestASessionBelongsToItsUser(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.operate(untilCancelled)
	owner, other := s.user("owner", runsCalls()), s.user("other", runsCalls())
	id := s.open(owner)
	call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"x"}}}`
	_, _, unknown := s.request(http.MethodPost, "/mcp", call, "Authorization", "Bearer "+other, sessionHeader, "no-such-session")
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		status, _, body := s.request(method, "/mcp", call, "Authorization", "Bearer "+other, sessionHeader, id)
		if status != http.StatusNotFound || body != unknown {
			t.Errorf("%s: %d %s", method, status, body)
		}
	}
	status, _, _ := s.request(http.MethodPost, "/mcp/default", call, "Authorization", "Bearer "+owner, sessionHeader, id)
	if status != http.StatusNotFound {
		t.Errorf("its own user in another namespace: %d", status)
	}
	s.none()
	list := `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`
	for name, token := range map[string]string{"same": owner, "new": s.token("owner")} {
		if status, _, body := s.request(http.MethodPost, "/mcp", list, "Authorization", "Bearer "+token, sessionHeader, id); status != http.StatusOK || !strings.Contains(body, "run_code") {
			t.Errorf("its user with the %s token: %d %s", name, status, body)
		}
	}
}

// In versions of the protocol without sessions, each request acts as its sender.
func TestRequestsWithoutSessionsActAsTheirSender(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.open(s.user("owner"))
	body := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"x"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	_, _, answer := s.request(http.MethodPost, "/mcp", body, "Authorization", "Bearer "+s.user("other"), sessionHeader, id,
		protocolHeader, sessionless, "Mcp-Method", "tools/call", "Mcp-Name", "run_command")
	if !strings.Contains(answer, ":other has no permission to do this") {
		t.Errorf("got %s", answer)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(e *Endpoint) { e.MaxSessions, e.MaxSessionsPerTenant, e.MaxSessionsPerUser = 3, 3, 2 })
	a, b := s.user("a"), s.user("b")
	refused := func(token string) bool {
		status, header, body := s.request(http.MethodPost, "/mcp", initialize, "Authorization", "Bearer "+token)
		return status == http.StatusServiceUnavailable && header.Get("Retry-After") != "" && strings.Contains(body, "too many open sessions")
	}
	first := s.open(a)
	s.open(a)
	if !refused(a) {
		t.Error("a user exceeds its limit")
	}
	s.open(b)
	if !refused(b) {
		t.Error("the total limit is exceeded")
	}
	if status, _, body := s.request(http.MethodDelete, "/mcp", "", "Authorization", "Bearer "+a, sessionHeader, first); status != http.StatusNoContent {
		t.Errorf("DELETE: %d %s", status, body)
	}
	last := s.open(b)
	if status, _, _ := s.request(http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`, "Authorization", "Bearer "+a, sessionHeader, first); status != http.StatusNotFound {
		t.Errorf("a closed session answers %d", status)
	}
	// Requests that open no session take no place.
	for range 5 {
		s.request(http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`, "Authorization", "Bearer "+b)
	}
	// A DELETE of a version that the protocol never had ends the session too: it keeps neither its place nor anything else.
	for range 3 {
		s.request(http.MethodDelete, "/mcp", "", "Authorization", "Bearer "+b, sessionHeader, last, protocolHeader, "1999-01-01")
		last = s.open(b)
	}
	if n := countOf(s.server.mcp.Sessions()); n != 3 {
		t.Errorf("%d sessions", n)
	}
}

func TestIdleSessionsEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(e *Endpoint) { e.SessionTimeout = 50 * time.Millisecond })
	s.open(s.user("a"))
	for deadline := time.Now().Add(testTimeout); countOf(s.server.mcp.Sessions()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the session is still open")
		}
	}
}

// A call is cancelled when its request is cancelled, when its session ends, and when its connection is lost.
func TestCancellation(t *testing.T) {
	t.Parallel()
	for _, version := range []string{withSessions, ""} {
		t.Run("a cancelled request, protocol "+version, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.operate(untilCancelled)
			session := s.session(s.user("agent", runsCalls()), "/mcp", version)
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "run_command", Arguments: fields{"command": "x"}})
				failed <- err
			}()
			s.only("created", func(*v1alpha1.ToolCall) bool { return true })
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("the client got %v", err)
			}
			s.only("cancelled", func(c *v1alpha1.ToolCall) bool { return c.Status.Phase == v1alpha1.PhaseCancelled })
		})
	}
	call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_command","arguments":{"command":"x"}}}`
	t.Run("the end of the session", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.operate(untilCancelled)
		token := s.user("agent", runsCalls())
		id := s.open(token)
		answered := make(chan string, 1)
		go func() {
			_, _, body := s.request(http.MethodPost, "/mcp", call, "Authorization", "Bearer "+token, sessionHeader, id)
			answered <- body
		}()
		s.only("created", func(*v1alpha1.ToolCall) bool { return true })
		if status, _, _ := s.request(http.MethodDelete, "/mcp", "", "Authorization", "Bearer "+token, sessionHeader, id); status != http.StatusNoContent {
			t.Errorf("DELETE: %d", status)
		}
		s.only("cancelled", func(c *v1alpha1.ToolCall) bool { return c.Status.Phase == v1alpha1.PhaseCancelled })
		<-answered
	})
	t.Run("a connection that is lost", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.operate(untilCancelled)
		token := s.user("agent", runsCalls())
		id := s.open(token)
		ctx, hangUp := context.WithCancel(t.Context())
		go func() {
			s.only("created", func(*v1alpha1.ToolCall) bool { return true })
			hangUp()
		}()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.web.URL+"/mcp", strings.NewReader(call))
		must(t, err)
		r.Header = http.Header{
			"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, sessionHeader: {id},
		}
		if answer, err := http.DefaultTransport.RoundTrip(r); err == nil {
			_, err = io.ReadAll(answer.Body)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the call was answered: %v", err)
			}
		}
		s.only("cancelled", func(c *v1alpha1.ToolCall) bool { return c.Status.Phase == v1alpha1.PhaseCancelled })
	})
}

// Without sessions, calls of all users have the same, empty session id. Nobody ends them by that.
func TestARequestWithoutSessionIDEndsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.operate(untilCancelled)
	call := s.running(s.session(s.user("agent", runsCalls()), "/mcp", ""))
	token := s.user("other")
	for _, method := range []string{http.MethodDelete, http.MethodGet, http.MethodPut} {
		status, _, body := s.request(method, "/mcp/"+s.namespace, "", "Authorization", "Bearer "+token)
		if status != http.StatusBadRequest || !strings.Contains(body, sessionHeader) {
			t.Errorf("%s: %d %s", method, status, body)
		}
	}
	must(t, s.admin.Get(t.Context(), keyIn(s.fixture, call.Name), call))
	if call.Spec.Cancel {
		t.Error("the call was cancelled")
	}
}
