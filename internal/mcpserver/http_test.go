package mcpserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// site is the endpoint, served by a real HTTP server in front of the tests' API server. It has the rights of config/mcp, and that to hand in
// approvals in its namespace.
type site struct {
	*fixture
	server *Server
	web    *httptest.Server
	close  context.CancelFunc
}

func newSite(t *testing.T, change ...func(*Endpoint)) *site {
	t.Helper()
	f := newFixture(t)
	must(t, f.admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "approvals"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "toolcall-mcp-approvals"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "toolcall-system", Name: "toolcall-mcp"}},
	}))
	conf := Endpoint{API: f.own(), Namespace: f.namespace, HTTPOptions: HTTPOptions{
		MaxSessions: 8, MaxSessionsPerTenant: 8, MaxSessionsPerUser: 4, SessionTimeout: time.Minute,
	}}
	for _, c := range change {
		c(&conf)
	}
	s := newTestServer(t, nil, 8)
	ctx, cancel := context.WithCancel(context.Background())
	r, err := conf.reviewer()
	must(t, err)
	web := httptest.NewServer(s.newEndpoint(ctx, conf, r))
	t.Cleanup(func() { s.Stop(); cancel(); web.CloseClientConnections(); web.Close(); must(t, s.Close()) })
	return &site{fixture: f, server: s, web: web, close: cancel}
}

// bearerTransport sends a token, which may change.
type bearerTransport struct{ token string }

func (b *bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// session connects the SDK's own client. The version is the protocol's; empty for the newest.
func (s *site) session(token, path, version string) *mcp.ClientSession {
	s.t.Helper()
	transport := &mcp.StreamableClientTransport{
		Endpoint: s.web.URL + path, HTTPClient: &http.Client{Transport: &bearerTransport{token}}, MaxRetries: -1,
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(s.t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	must(s.t, err)
	s.t.Cleanup(func() { _ = session.Close() })
	return session
}

const withSessions = "2025-11-25"

// request sends one request and returns the response.
func (s *site) request(method, path, body string, headers ...string) (int, http.Header, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.web.URL+path, strings.NewReader(body))
	must(s.t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	must(s.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(s.t, err)
	return answer.StatusCode, answer.Header, string(text)
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

func (s *site) open(token string) string {
	s.t.Helper()
	status, header, body := s.request(http.MethodPost, "/mcp", initialize, "Authorization", "Bearer "+token)
	if status != http.StatusOK || header.Get(sessionHeader) == "" {
		s.t.Fatalf("initialize: %d %s", status, body)
	}
	return header.Get(sessionHeader)
}

// Every request needs a token that the cluster accepts, on every path and with every method.
func TestNoAnonymousAccess(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	good := s.user("agent")
	for name, test := range map[string]struct {
		headers   []string
		challenge string
	}{
		"no token":           {nil, `Bearer realm="toolcall"`},
		"an empty token":     {[]string{"Authorization", "Bearer "}, `Bearer realm="toolcall"`},
		"another scheme":     {[]string{"Authorization", "Basic YTpi"}, `Bearer realm="toolcall"`},
		"two words":          {[]string{"Authorization", "Bearer a b"}, `Bearer realm="toolcall"`},
		"a huge token":       {[]string{"Authorization", "Bearer " + strings.Repeat("a", 20<<10)}, `Bearer realm="toolcall"`},
		"an invented token":  {[]string{"Authorization", "Bearer abc"}, `Bearer realm="toolcall", error="invalid_token"`},
		"a changed token":    {[]string{"Authorization", "Bearer " + good[:len(good)-8] + "AAAAAAAA"}, `Bearer realm="toolcall", error="invalid_token"`},
		"an impersonation":   {[]string{"Authorization", "Bearer abc", "Impersonate-User", "system:admin"}, `Bearer realm="toolcall", error="invalid_token"`},
		"a session's number": {[]string{sessionHeader, s.open(good)}, `Bearer realm="toolcall"`},
	} {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete, http.MethodPut} {
			for _, path := range []string{"/mcp", "/mcp/" + s.namespace} {
				status, header, body := s.request(method, path, initialize, test.headers...)
				if status != http.StatusUnauthorized || header.Get("Www-Authenticate") != test.challenge || header.Get(sessionHeader) != "" {
					t.Errorf("%s: %s %s: %d, challenge %q: %s", name, method, path, status, header.Get("Www-Authenticate"), body)
				}
			}
		}
	}
	if n := s.server.mcp.Sessions(); countOf(n) != 1 {
		t.Errorf("%d sessions are open", countOf(n))
	}
}

func countOf[T any](seq func(func(T) bool)) (n int) {
	for range seq {
		n++
	}
	return n
}

// Over HTTP, a requester can do what its user has permission to do, and nothing else.
func TestCallsAreTheRequesters(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		version   string
		pass      bool
		audiences []string
	}{
		"with sessions":       {withSessions, false, []string{defaultAudience}},
		"without sessions":    {"", false, []string{defaultAudience}},
		"with tokens passed":  {"", true, nil},
		"with both audiences": {"", false, []string{"another", defaultAudience}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(e *Endpoint) { e.PassTokens = test.pass })
			s.operate(echo)
			s.user("may", runsCalls())
			s.user("may-not")
			may := s.session(s.tokenFor("may", test.audiences...), "/mcp", test.version)
			mayNot := s.session(s.tokenFor("may-not", test.audiences...), "/mcp", test.version)
			if answer, result := use(t, may, "run_command", fields{"command": "hello"}); answer.IsError || result.Output != "hello" {
				t.Fatalf("%+v", result)
			}
			answer, result := use(t, mayNot, "run_command", fields{"command": "hello"})
			user := "system:serviceaccount:" + s.namespace + ":may-not"
			if !answer.IsError || result.Reason != "Forbidden" || !ptr.Deref(result.RetrySafe, false) ||
				!strings.HasPrefix(textOf(answer), user) || !strings.Contains(textOf(answer), "toolcall-user") {
				t.Errorf("%+v", result)
			}
			answer, _ = use(t, may, "list_environments", nil)
			if !answer.IsError || !strings.Contains(textOf(answer), "no permission to do this") {
				t.Errorf("%+v", answer)
			}
			call := s.only("the one that was allowed", func(*v1alpha1.ToolCall) bool { return true })
			if call.Labels[labelConversation] != may.ID() {
				t.Errorf("the call of the conversation %q has the labels %v", may.ID(), call.Labels)
			}
			if by := call.Spec.RequestedBy; by == nil || by.Username != "system:serviceaccount:"+s.namespace+":may" ||
				!slices.Contains(by.Groups, "system:serviceaccounts:"+s.namespace) || (by.UID != "") != test.pass {
				t.Errorf("the call was requested by %+v", by)
			}
		})
	}
}

func TestRejectedRequests(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(e *Endpoint) { e.AllowedOrigins = []string{"https://good.example.com"} })
	token := "Bearer " + s.user("agent")
	for name, test := range map[string]struct {
		path, body string
		headers    []string
		status     int
		says       string
	}{
		"a web page":                {"/mcp", initialize, []string{"Origin", "https://evil.example.com"}, 403, "web pages"},
		"a web page of this host":   {"/mcp", initialize, []string{"Origin", s.web.URL}, 403, "web pages"},
		"a page without an origin":  {"/mcp", initialize, []string{"Origin", "null"}, 403, "web pages"},
		"a web page that may":       {"/mcp", initialize, []string{"Origin", "https://good.example.com"}, 200, "serverInfo"},
		"a name that was rebound":   {"/mcp", initialize, []string{"Host", "evil.example.com"}, 403, "Host"},
		"too large a request":       {"/mcp", `{"x":"` + strings.Repeat("a", maxBody) + `"}`, nil, 413, "too large"},
		"not JSON":                  {"/mcp", `{"jsonrpc":`, nil, 400, "malformed"},
		"nothing":                   {"/mcp", ``, nil, 400, "non-empty"},
		"another path":              {"/", initialize, nil, 404, "not found"},
		"no namespace's name":       {"/mcp/UPPER", initialize, nil, 404, "lower-case"},
		"a path out of it":          {"/mcp/..%2F..%2Fapi", initialize, nil, 404, "lower-case"},
		"a path with more":          {"/mcp/a/b", initialize, nil, 404, "ends in files, run or all"},
		"a namespace that is there": {"/mcp/default", initialize, nil, 200, "serverInfo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, _, body := s.request(http.MethodPost, test.path, test.body, append([]string{"Authorization", token}, test.headers...)...)
			if status != test.status || !strings.Contains(body, test.says) {
				t.Errorf("%d %.300s", status, body)
			}
		})
	}
}

func TestTheNamespaceInThePath(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(e *Endpoint) { e.Namespace = "" })
	s.operate(echo)
	token := s.user("agent", runsCalls())
	if status, _, body := s.request(http.MethodPost, "/mcp", initialize, "Authorization", "Bearer "+token); status != http.StatusNotFound || !strings.Contains(body, "/mcp/NAMESPACE") {
		t.Errorf("%d %s", status, body)
	}
	if answer, result := use(t, s.session(token, "/mcp/"+s.namespace, withSessions), "run_command", fields{"command": "x"}); answer.IsError || result.Call == "" {
		t.Errorf("%+v", result)
	}
	if _, result := use(t, s.session(token, "/mcp/default", withSessions), "run_command", fields{"command": "x"}); result.Reason != "Forbidden" || !strings.Contains(result.Output, "in namespace default") {
		t.Errorf("%+v", result)
	}
}

// If the API server is unreachable, requests are rejected for now, and the token is not blamed.
func TestAnUnreachableAPIServer(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(e *Endpoint) {
		away := *e.API
		away.Host = "https://127.0.0.1:1"
		e.API = &away
	})
	status, header, body := s.request(http.MethodPost, "/mcp", initialize, "Authorization", "Bearer abc")
	if status != http.StatusServiceUnavailable || header.Get("Www-Authenticate") != "" || strings.Contains(body, "127.0.0.1") {
		t.Errorf("%d %s", status, body)
	}
}

// A revoked token is rejected once the cached answer about it expires.
func TestARevokedTokenIsRejected(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	token := s.user("agent")
	id := s.open(token)
	must(t, s.clients.CoreV1().ServiceAccounts(s.namespace).Delete(t.Context(), "agent", metav1.DeleteOptions{}))
	for deadline := time.Now().Add(identityTTL + testTimeout); ; time.Sleep(200 * time.Millisecond) {
		status, _, _ := s.request(http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`, "Authorization", "Bearer "+token, sessionHeader, id)
		if status == http.StatusUnauthorized {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %d", status)
		}
	}
}

// Anonymous requests are rejected even if RBAC grants permissions to everybody.
func TestAnonymousRequestsAreRejected(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	must(t, s.admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "everybody"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:unauthenticated"}},
	}))
	if status, _, _ := s.request(http.MethodPost, "/mcp", initialize); status != http.StatusUnauthorized {
		t.Errorf("%d", status)
	}
}

func TestMetricsCountRejectedRequests(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.open(s.user("agent"))
	s.request(http.MethodPost, "/mcp", initialize)
	families, err := s.server.options.Metrics.Registry.Gather()
	must(t, err)
	got := map[string]string{}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "toolcall_mcp_") {
			got[f.GetName()] = fmt.Sprint(f.GetMetric())
		}
	}
	if !strings.Contains(got["toolcall_mcp_http_rejected_total"], `value:"token"`) || !strings.Contains(got["toolcall_mcp_sessions"], "value:1") {
		t.Errorf("%v", got)
	}
}
