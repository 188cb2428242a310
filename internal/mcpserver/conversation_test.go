package mcpserver

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
)

// A conversation ends the sessions that it created. One that others created, it shares, and the last of them ends it.
func TestASessionOfSeveralConversations(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.operateSessions(v1alpha1.SessionReady)
	token := s.user("agent", managesSessions())
	first, second, third := s.session(token, "/mcp", withSessions), s.session(token, "/mcp", withSessions), s.session(token, "/mcp", withSessions)
	_, started := use(t, first, "start_session", fields{"request_id": "ws"})
	for range 2 {
		if _, result := use(t, second, "start_session", fields{"request_id": "ws", "environment": "other"}); result.Reason != reply.ReasonRequestIDConflict || result.Session != started.Session {
			t.Errorf("%+v", result)
		}
	}
	if _, again := use(t, third, "start_session", fields{"request_id": "ws"}); again.Session != started.Session {
		t.Errorf("%+v", again)
	}
	s.leave(second)
	s.leave(first)
	if open, _ := s.sessions(); !slices.Equal(open, []string{started.Session}) {
		t.Errorf("open sessions are %q", open)
	}
	s.leave(third)
	if open, _ := s.sessions(); len(open) != 0 {
		t.Errorf("afterwards, open sessions are %q", open)
	}
}

// leave ends a conversation over HTTP, and returns when its sessions have ended.
func (s *site) leave(session *mcp.ClientSession) {
	s.t.Helper()
	for client := range s.server.mcp.Sessions() {
		if client.ID() == session.ID() {
			s.server.conversations.end(client)
		}
	}
	must(s.t, session.Close())
}

// A session that a conversation of another server created is not this one's to end.
func TestASessionOfAnotherServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operateSessions(v1alpha1.SessionReady)
	here := newTestServer(t, f.local(), 8)
	_, started := use(t, connected(t, newTestServer(t, f.local(), 8), nil), "start_session", fields{"request_id": "ws"})
	if _, again := use(t, connected(t, here, nil), "start_session", fields{"request_id": "ws"}); again.Session != started.Session {
		t.Errorf("%+v", again)
	}
	here.conversations.end(only(t, here))
	if open, _ := f.sessions(); !slices.Equal(open, []string{started.Session}) {
		t.Errorf("open sessions are %q", open)
	}
}

// Sessions that have ended by themselves, or never came to be, take no place in a conversation.
func TestSessionsThatAreGoneTakeNoPlace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operateSessions(v1alpha1.SessionReady)
	session := connected(t, newTestServer(t, f.local(), 8), nil)
	for range maxSessionsOfClient {
		use(t, session, "start_session", nil)
	}
	if _, result := use(t, session, "start_session", nil); result.Reason != v1alpha1.ReasonTooManySessions {
		t.Errorf("one too many: %+v", result)
	}
	open, _ := f.sessions()
	gone, ended := &v1alpha1.ToolSession{}, &v1alpha1.ToolSession{}
	gone.Namespace, gone.Name, ended.Namespace, ended.Name = f.namespace, open[0], f.namespace, open[1]
	must(t, f.admin.Delete(t.Context(), gone))
	must(t, f.admin.Patch(t.Context(), ended, endPatch))
	eventually(t, "end of the session", func() bool {
		must(t, f.admin.Get(t.Context(), keyIn(f, open[1]), ended))
		return ended.Status.Phase == v1alpha1.SessionEnded
	})
	for range 2 {
		if answer, result := use(t, session, "start_session", nil); answer.IsError {
			t.Errorf("after the ends: %+v", result)
		}
	}
	open, _ = f.sessions()
	gone.Name = open[0]
	must(t, f.admin.Delete(t.Context(), gone))
	if _, result := use(t, session, "end_session", fields{"session": open[0]}); result.Reason != reply.ReasonNotFound {
		t.Errorf("%+v", result)
	}
	if answer, result := use(t, session, "start_session", nil); answer.IsError {
		t.Errorf("after a deletion: %+v", result)
	}
}

// A conversation's sessions end with the newest credentials of its user.
func TestSessionsEndWithTheNewestToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.operateSessions(v1alpha1.SessionReady)
	token := s.user("agent", managesSessions())
	id := s.open(token)
	start := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"start_session","arguments":{}}}`
	s.request(http.MethodPost, "/mcp", start, "Authorization", "Bearer "+token, sessionHeader, id)
	newest := s.token("agent")
	s.request(http.MethodDelete, "/mcp", "", "Authorization", "Bearer "+s.token("agent"), sessionHeader, "another")
	tokens := func() (all []*identity.Requester) {
		s.server.conversations.mu.Lock()
		defer s.server.conversations.mu.Unlock()
		for _, c := range s.server.conversations.clients {
			all = slices.AppendSeq(all, maps.Values(c.sessions))
		}
		return all
	}
	before := tokens()
	list := `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"list_environments","arguments":{}}}`
	s.request(http.MethodPost, "/mcp", list, "Authorization", "Bearer "+newest, sessionHeader, id)
	if after := tokens(); len(before) != 1 || len(after) != 1 || before[0] == after[0] {
		t.Errorf("requesters %v, then %v", before, after)
	}
	s.request(http.MethodDelete, "/mcp", "", "Authorization", "Bearer "+newest, sessionHeader, id)
	eventually(t, "end of the session", func() bool { _, ended := s.sessions(); return len(ended) == 1 })
}

// Who may not end a session or cancel a call is told so.
func TestEndsThatAreForbidden(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	group := []string{v1alpha1.GroupVersion.Group}
	reads := rbacv1.PolicyRule{APIGroups: group, Resources: []string{"toolsessions", "toolcalls"}, Verbs: []string{"get", "list", "watch"}}
	session := &v1alpha1.ToolSession{}
	session.Namespace, session.Name = s.namespace, "s"
	must(t, s.admin.Create(t.Context(), session))
	call := &v1alpha1.ToolCall{Spec: v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "x"}}}
	call.Namespace, call.Name = s.namespace, "c"
	must(t, s.admin.Create(t.Context(), call))
	reader := s.session(s.user("reader", reads), "/mcp", "")
	answer, result := use(t, reader, "end_session", fields{"session": "s"})
	if !answer.IsError || result.Reason != "Forbidden" || result.Session != "s" || !ptr.Deref(result.RetrySafe, false) || !strings.Contains(result.Output, "no permission") {
		t.Errorf("%+v", result)
	}
	answer, result = use(t, reader, "cancel_call", fields{"call": "c"})
	if !answer.IsError || result.Reason != "Forbidden" || result.Call != "c" || !ptr.Deref(result.RetrySafe, false) || !strings.Contains(result.Output, "no permission") {
		t.Errorf("%+v", result)
	}
}

// Calls that wait for the session of their conversation stop waiting when they are cancelled; the session that is being created ends with
// the conversation.
func TestWaitingForTheSessionOfAConversation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	requester := f.local()
	slow := &slowSessions{requester.Objects, make(chan struct{}), make(chan struct{})}
	requester.Objects = slow
	s := NewServer(Options{Requester: requester, MaxCalls: 8, MaxCallsPerUser: 8, SessionPerClient: true, Version: "test", Log: quiet()})
	session := connected(t, s, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 2 {
		waiting.Go(func() {
			_, _ = session.CallTool(ctx, &mcp.CallToolParams{Name: "run_command", Arguments: fields{"command": "x"}})
		})
	}
	<-slow.begun
	eventually(t, "calls", func() bool { return s.calls.Used() == 2 })
	cancel()
	waiting.Wait()
	eventually(t, "end of the calls", func() bool { return s.calls.Used() == 0 })
	f.none()
	close(slow.proceed)
	must(t, s.Close())
	if open, ended := f.sessions(); len(open) != 0 || len(ended) != 1 {
		t.Errorf("sessions %q and %q", open, ended)
	}
}

// perClient connects a client whose calls share a session.
func perClient(t *testing.T, f *fixture) *mcp.ClientSession {
	t.Helper()
	s := NewServer(Options{Requester: f.local(), MaxCalls: 64, MaxCallsPerUser: 64, SessionPerClient: true, Version: "test", Log: quiet()})
	t.Cleanup(func() { must(t, s.Close()) })
	return connected(t, s, nil)
}

// With a session for each client, all calls of a client that say nothing else share one, which ends with the connection.
func TestASessionPerClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(echo)
	f.operateSessions(v1alpha1.SessionReady)
	t.Run("connected", func(t *testing.T) {
		session := perClient(t, f)
		results := make([]reply.Result, 10)
		var running sync.WaitGroup
		for i := range results {
			running.Go(func() { _, results[i] = use(t, session, "run_command", fields{"command": "x"}) })
		}
		running.Wait()
		open, _ := f.sessions()
		for i := range results {
			if len(open) != 1 || results[i].Session != open[0] {
				t.Errorf("%+v in sessions %q", results[i], open)
			}
		}
		call := &v1alpha1.ToolCall{}
		must(t, f.admin.Get(t.Context(), keyIn(f, results[0].Call), call))
		if call.Spec.SessionRef.UID == "" {
			t.Error("the call would run in another session of the same name")
		}
		if _, apart := use(t, session, "run_command", fields{"command": "x", "environment": "tools"}); apart.Session != "" {
			t.Errorf("with an environment: %+v", apart)
		}
		if _, again := use(t, session, "run_command", fields{"command": "x", "session": "mine"}); again.Session != "mine" {
			t.Errorf("with a session: %+v", again)
		}
	})
	if open, ended := f.sessions(); len(open) != 0 || len(ended) != 1 {
		t.Errorf("afterwards: sessions %q, ended %q", open, ended)
	}
}

// The conversation goes on in another session when its own has ended, and the model is told that the files are gone.
func TestASessionPerClientThatEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operateSessions(v1alpha1.SessionReady)
	var mu sync.Mutex
	over := map[string]bool{}
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		mu.Lock()
		defer mu.Unlock()
		if over[call.Spec.SessionRef.Name] {
			s := finishedStatus(v1alpha1.PhaseFailed, v1alpha1.ReasonSessionEnded)
			s.RetrySafe = ptr.To(true)
			return s
		}
		return echo(call)
	})
	session := perClient(t, f)
	arguments := fields{"command": "x", "request_id": "across-sessions"}
	_, first := use(t, session, "run_command", arguments)
	mu.Lock()
	over[first.Session] = true
	mu.Unlock()
	answer, lost := use(t, session, "run_command", fields{"command": "y"})
	if !answer.IsError || lost.Reason != v1alpha1.ReasonSessionEnded || !ptr.Deref(lost.RetrySafe, false) {
		t.Errorf("%+v", lost)
	}
	if !strings.Contains(lost.Output, "its files are gone") || !strings.HasSuffix(lost.Output, "which has only the files on those volumes.") {
		t.Errorf("the model isn't told: %q", lost.Output)
	}
	if _, next := use(t, session, "run_command", fields{"command": "y"}); next.Output != "y" || next.Session == first.Session {
		t.Errorf("%+v", next)
	}
	if _, again := use(t, session, "run_command", arguments); again.Call != first.Call || again.Session != first.Session {
		t.Errorf("the same request: %+v", again)
	}
	// Another conversation of the user repeats a request whose session has ended.
	ends := fields{"command": "z", "request_id": "ends"}
	second := perClient(t, f)
	_, started := use(t, second, "run_command", fields{"command": "y"})
	mu.Lock()
	over[started.Session] = true
	mu.Unlock()
	_, failed := use(t, second, "run_command", ends)
	before, _ := f.sessions()
	_, repeated := use(t, perClient(t, f), "run_command", ends)
	if repeated.Call != failed.Call || strings.Contains(repeated.Output, "its files are gone") || !strings.Contains(repeated.Output, "use another request_id") {
		t.Errorf("%+v, then %+v", failed, repeated)
	}
	if after, _ := f.sessions(); !slices.Equal(before, after) {
		t.Errorf("sessions %q, then %q", before, after)
	}
}
