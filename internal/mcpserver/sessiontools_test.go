package mcpserver

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/reply"
)

// operateSessions takes the operator's place for sessions: they are ready at once, and end when somebody asks for it.
func (f *fixture) operateSessions(first v1alpha1.SessionPhase) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	watching, err := f.admin.Watch(ctx, &v1alpha1.ToolSessionList{}, client.InNamespace(f.namespace))
	must(f.t, err)
	var done sync.WaitGroup
	done.Go(func() {
		for event := range watching.ResultChan() {
			session, ok := event.Object.(*v1alpha1.ToolSession)
			if !ok || event.Type == watch.Deleted {
				continue
			}
			was := session.Status.Phase
			switch {
			case session.Spec.End:
				session.Status.Phase, session.Status.Reason = v1alpha1.SessionEnded, v1alpha1.ReasonEndRequested
			case was == "":
				session.Status.Phase, session.Status.Reason, session.Status.Message = first, v1alpha1.ReasonReady, "as the test wants it: set spec.environmentRef"
			}
			if session.Status.Phase == was {
				continue
			}
			if err := f.admin.Status().Update(ctx, session); err != nil && ctx.Err() == nil {
				f.t.Errorf("session %s: %v", session.Name, err)
			}
		}
	})
	f.t.Cleanup(func() { cancel(); watching.Stop(); done.Wait() })
}

// sessions lists the namespace's sessions that were not asked to end.
func (f *fixture) sessions() (open, ended []string) {
	f.t.Helper()
	list := &v1alpha1.ToolSessionList{}
	must(f.t, f.admin.List(context.Background(), list, client.InNamespace(f.namespace)))
	for i := range list.Items {
		if list.Items[i].Spec.End {
			ended = append(ended, list.Items[i].Name)
		} else {
			open = append(open, list.Items[i].Name)
		}
	}
	return open, ended
}

// managesSessions is the permission to start and end sessions.
func managesSessions() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolsessions"}, Verbs: []string{"create", "get", "list", "watch", "patch"}}
}

func TestASessionIsStartedUsedAndEnded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(echo)
	f.operateSessions(v1alpha1.SessionReady)
	client := connected(t, newTestServer(t, f.local(), 8), nil)
	answer, started := use(t, client, "start_session", fields{
		"environment": "tools", "working_dir": "/workspace", "env": fields{"A": "1"}, "workspace": "1Gi", "idle_timeout_seconds": 0, "max_lifetime_seconds": 60, "request_id": "s",
	})
	if answer.IsError || started.Reason != v1alpha1.ReasonReady || started.Session == "" || !strings.Contains(textOf(answer), "session: "+started.Session) {
		t.Fatalf("%+v", started)
	}
	session := &v1alpha1.ToolSession{}
	must(t, f.admin.Get(t.Context(), keyIn(f, started.Session), session))
	if s := session.Spec; s.EnvironmentRef.Name != "tools" || s.WorkingDir != "/workspace" || len(s.Env) != 1 || s.Workspace.Size.String() != "1Gi" ||
		*s.IdleTimeoutSeconds != 0 || *s.MaxLifetimeSeconds != 60 {
		t.Errorf("%+v", s)
	}
	if _, result := use(t, client, "run_command", fields{"command": "x", "session": started.Session}); result.Session != started.Session || result.Output != "x" {
		t.Errorf("%+v", result)
	}
	for range 2 {
		if answer, ended := use(t, client, "end_session", fields{"session": started.Session}); answer.IsError || ended.Phase != "Ended" || ended.Session != started.Session {
			t.Errorf("%+v", ended)
		}
	}
	if answer, result := use(t, client, "end_session", fields{"session": "none"}); !answer.IsError || result.Reason != reply.ReasonNotFound {
		t.Errorf("%+v", result)
	}
}

func keyIn(f *fixture, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: f.namespace, Name: name}
}

// The same id with the same arguments gives the same session, with other arguments an error.
func TestASessionWithARequestID(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operateSessions(v1alpha1.SessionReady)
	session := connected(t, newTestServer(t, f.local(), 64), nil)
	names := make([]string, 20)
	var running sync.WaitGroup
	for i := range names {
		running.Go(func() {
			_, result := use(t, session, "start_session", fields{"request_id": "s", "timeout_seconds": 60 + i})
			names[i] = result.Session
		})
	}
	running.Wait()
	if open, _ := f.sessions(); len(open) != 1 || len(slices.Compact(names)) != 1 || names[0] != open[0] {
		t.Errorf("answers %q, sessions %q", names, open)
	}
	if answer, result := use(t, session, "start_session", fields{"request_id": "s", "environment": "x"}); !answer.IsError || result.Reason != reply.ReasonRequestIDConflict {
		t.Errorf("%+v", result)
	}
}

func TestSessionsThatAreNotReady(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operateSessions(v1alpha1.SessionEnded)
	session := connected(t, newTestServer(t, f.local(), 8), nil)
	if answer, result := use(t, session, "start_session", nil); !answer.IsError || result.Phase != "Ended" || !strings.HasSuffix(result.Output, "as the test wants it: set environment") || !ptr.Deref(result.RetrySafe, false) {
		t.Errorf("one that ended: %+v", result)
	}
	if _, result := use(t, session, "start_session", fields{"request_id": "s"}); !strings.HasSuffix(result.Output, "set environment. To start another one, use another request_id.") {
		t.Errorf("one that a request_id finds again: %+v", result)
	}
	f = newFixture(t)
	f.operateSessions(v1alpha1.SessionSuspended)
	session = connected(t, newTestServer(t, f.local(), 8), nil)
	if answer, result := use(t, session, "start_session", fields{"request_id": "s", "timeout_seconds": 5}); answer.IsError || result.Phase != "Suspended" ||
		!strings.Contains(result.Output, "is suspended, and keeps its files. You can pass it as the argument session: as the test wants it: set environment") {
		t.Errorf("one that is suspended: %+v", result)
	}
	f = newFixture(t)
	session = connected(t, newTestServer(t, f.local(), 8), nil)
	if answer, result := use(t, session, "start_session", fields{"timeout_seconds": 0}); answer.IsError || result.Session == "" || result.Reason != v1alpha1.ReasonSessionStarting {
		t.Errorf("one that starts: %+v", result)
	}
	for _, wrong := range []fields{
		{"workspace": "big"}, {"workspace": "-1Gi"}, {"workspace": strings.Repeat("9", 1<<16)}, {"idle_timeout_seconds": -1}, {"max_lifetime_seconds": 0},
		{"timeout_seconds": 601}, {"session": "x"}, {"environment": "A B"}, {"env": fields{"": "x"}}, {"request_id": " "},
	} {
		if _, result := use(t, session, "start_session", wrong); result.Reason != v1alpha1.ReasonInvalidArguments || len(result.Output) > reply.MaxMessage {
			t.Errorf("%.100v: %+v", wrong, result)
		}
	}
	if open, _ := f.sessions(); len(open) != 1 {
		t.Errorf("sessions %q", open)
	}
}

// A client that stops waiting for its session leaves none behind, also without a connection that could end.
func TestASessionThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	session := s.session(s.user("agent", managesSessions()), "/mcp", "")
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() { _, _ = session.CallTool(ctx, &mcp.CallToolParams{Name: "start_session"}) })
	eventually(t, "session", func() bool { open, _ := s.sessions(); return len(open) == 1 })
	cancel()
	waiting.Wait()
	eventually(t, "end of the session", func() bool { open, _ := s.sessions(); return len(open) == 0 })
}

// Sessions end with the connection over standard input and output, and are bounded.
func TestSessionsEndWithTheirClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operateSessions(v1alpha1.SessionReady)
	s := newTestServer(t, f.local(), 64)
	here, there := mcp.NewInMemoryTransports()
	served := make(chan error, 1)
	go func() { served <- s.Run(context.Background(), there) }()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	must(t, err)
	for range maxSessionsOfClient {
		if answer, result := use(t, session, "start_session", nil); answer.IsError {
			t.Fatalf("%+v", result)
		}
	}
	answer, result := use(t, session, "start_session", nil)
	if !answer.IsError || result.Reason != v1alpha1.ReasonTooManySessions || !ptr.Deref(result.RetrySafe, false) {
		t.Errorf("one too many: %+v", result)
	}
	open, _ := f.sessions()
	use(t, session, "end_session", fields{"session": open[0]})
	if answer, result := use(t, session, "start_session", nil); answer.IsError {
		t.Errorf("after one has ended: %+v", result)
	}
	must(t, session.Close())
	must(t, <-served)
	if open, ended := f.sessions(); len(open) != 0 || len(ended) != maxSessionsOfClient+1 {
		t.Errorf("sessions %q are left", open)
	}
}

// Over HTTP, sessions end with the session of the protocol. Without that, they stay until somebody ends them.
func TestSessionsOverHTTP(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.operateSessions(v1alpha1.SessionReady)
	token := s.user("agent", runsCalls(), managesSessions())
	with, without := s.session(token, "/mcp", withSessions), s.session(token, "/mcp", "")
	_, bound := use(t, with, "start_session", nil)
	_, free := use(t, without, "start_session", nil)
	must(t, with.Close())
	must(t, without.Close())
	eventually(t, "end of the bound session", func() bool { _, ended := s.sessions(); return slices.Equal(ended, []string{bound.Session}) })
	if open, _ := s.sessions(); !slices.Equal(open, []string{free.Session}) {
		t.Errorf("sessions %q", open)
	}
	// Who may not end sessions doesn't.
	other := s.session(s.user("other", runsCalls()), "/mcp", withSessions)
	if answer, result := use(t, other, "end_session", fields{"session": free.Session}); !answer.IsError || result.Reason != "Forbidden" {
		t.Errorf("%+v", result)
	}
	if answer, result := use(t, other, "start_session", nil); !answer.IsError || result.Reason != "Forbidden" || !ptr.Deref(result.RetrySafe, false) {
		t.Errorf("%+v", result)
	}
	if status, _, _ := s.request(http.MethodPost, "/mcp", initialize, "Authorization", "Bearer "+token); status != http.StatusOK {
		t.Errorf("afterwards: %d", status)
	}
}

// slowSessions holds the creation of sessions until the test lets it go on.
type slowSessions struct {
	objects
	begun, proceed chan struct{}
}

func (s *slowSessions) Create(ctx context.Context, session client.Object, opts ...client.CreateOption) error {
	close(s.begun)
	<-s.proceed
	return s.objects.Create(ctx, session, opts...)
}

// A session that is created while its client leaves is ended.
func TestASessionWhoseClientLeaves(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	requester := f.local()
	slow := &slowSessions{requester.Objects, make(chan struct{}), make(chan struct{})}
	requester.Objects = slow
	s := newTestServer(t, requester, 8)
	here, there := mcp.NewInMemoryTransports()
	served := make(chan error, 1)
	go func() { served <- s.Run(context.Background(), there) }()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	must(t, err)
	var asking, closing sync.WaitGroup
	asking.Go(func() {
		_, _ = session.CallTool(context.Background(), &mcp.CallToolParams{Name: "start_session", Arguments: fields{"request_id": "r"}})
	})
	<-slow.begun
	s.conversations.end(only(t, s))
	close(slow.proceed)
	asking.Wait()
	closing.Go(func() { _ = session.Close() })
	must(t, <-served)
	closing.Wait()
	if open, ended := f.sessions(); len(open) != 0 || len(ended) != 1 {
		t.Errorf("sessions %q are left, %q ended", open, ended)
	}
}

// only returns the one client of a server.
func only(t *testing.T, s *Server) *mcp.ServerSession {
	t.Helper()
	for session := range s.mcp.Sessions() {
		return session
	}
	t.Fatal("there is no client")
	return nil
}

// A session whose end the API server doesn't take is asked to end again.
func TestEndingASessionIsRetried(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operateSessions(v1alpha1.SessionReady)
	requester := f.local()
	lossy := &lossyPatches{objects: requester.Objects, lose: 2}
	requester.Objects = lossy
	session := &v1alpha1.ToolSession{}
	session.Namespace, session.GenerateName = f.namespace, "s-"
	must(t, f.admin.Create(t.Context(), session))
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	must(t, endForSure(ctx, requester, client.ObjectKeyFromObject(session)))
	if _, ended := f.sessions(); len(ended) != 1 || lossy.lose != 0 {
		t.Errorf("ended %q, %d more to lose", ended, lossy.lose)
	}
	ended, stop := context.WithDeadline(t.Context(), time.Now())
	defer stop()
	if err := endForSure(ended, requester, client.ObjectKeyFromObject(session)); err == nil {
		t.Error("no error without time")
	}
}

// lossyPatches loses the first patch requests.
type lossyPatches struct {
	objects
	lose int
}

func (l *lossyPatches) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if l.lose > 0 {
		l.lose--
		return context.DeadlineExceeded
	}
	return l.objects.Patch(ctx, o, patch, opts...)
}
