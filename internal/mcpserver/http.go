package mcpserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"

	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/tools"
	"toolcall.dev/operator/internal/serving"
	"toolcall.dev/operator/internal/serving/limits"
)

const (
	// maxBody bounds a request. The largest call that the API accepts fits, with all characters escaped.
	maxBody = 4 << 20
	// bodyTimeout bounds the time in which the body of a request must arrive.
	bodyTimeout = 30 * time.Second
	// writeTimeout bounds the time in which a client must receive a part of an answer: one that nobody reads would take up memory otherwise.
	writeTimeout = 30 * time.Second

	// maxRequestBytes and its parts bound the bodies of all requests that are being served. A request without a body
	// counts as minRequestBytes, so they bound the number of requests too.
	maxRequestBytes          = 128 << 20
	maxRequestBytesPerTenant = maxRequestBytes / 2
	maxRequestBytesPerUser   = maxRequestBytes / 4
	minRequestBytes          = 16 << 10

	// apiErrorLogInterval bounds how often an unreachable API server is logged.
	apiErrorLogInterval = 10 * time.Second

	sessionHeader  = "Mcp-Session-Id"
	protocolHeader = "Mcp-Protocol-Version"
	// sessionless is the first version of the protocol without sessions.
	sessionless = "2026-07-28"
)

// Endpoint configures the HTTP endpoint.
type Endpoint struct {
	HTTPOptions
	// API leads to the API server, with the server's own credentials. They aren't used where tokens are passed on.
	API *rest.Config
	// Namespace of the calls at /mcp and /mcp/VIEW. The paths /mcp/NAMESPACE and /mcp/NAMESPACE/VIEW name another. If it is empty, only those
	// exist.
	Namespace string
}

// endpoint serves the protocol over HTTP.
type endpoint struct {
	Endpoint
	server        *Server
	authenticator *authenticator
	requestBytes  *fair.Counter[string]
	apiErrors     *rate.Sometimes
	// stateful serves sessions, stateless the versions of the protocol that have none.
	stateful, stateless http.Handler
	// closing ends the streams that otherwise stay open.
	closing context.Context
}

// reviewer returns what finds out whose tokens are.
func (e *Endpoint) reviewer() (reviewer, error) {
	if e.PassTokens {
		return identity.NewTokenPasser(e.API)
	}
	return identity.NewImpersonator(e.API, e.audiences())
}

// newEndpoint serves the protocol over HTTP. Idle streams end with the context.
func (s *Server) newEndpoint(ctx context.Context, conf Endpoint, r reviewer) http.Handler {
	e := &endpoint{
		Endpoint: conf, server: s, authenticator: newAuthenticator(r, conf.sources()), closing: ctx,
		requestBytes: newCounter(maxRequestBytes, maxRequestBytesPerTenant, maxRequestBytesPerUser),
		apiErrors:    &rate.Sometimes{First: 1, Interval: apiErrorLogInterval},
	}
	s.conversations.places = newCounter(conf.MaxSessions, conf.MaxSessionsPerTenant, conf.MaxSessionsPerUser)
	s.mcp.AddReceivingMiddleware(s.openConversation)
	s.options.Metrics.exportSessions(s.conversations.places.Used)
	server := func(*http.Request) *mcp.Server { return s.mcp }
	e.stateful = withTokenInfo(mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
		SessionTimeout: conf.SessionTimeout, MaxRequestBodyBytes: maxBody, Logger: s.options.Log,
	}))
	e.stateless = withTokenInfo(mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: maxBody, Logger: s.options.Log,
	}))
	mux := http.NewServeMux()
	mux.Handle("/mcp", e)
	mux.Handle("/mcp/{namespace}", e)
	mux.Handle("/mcp/{namespace}/{view}", e)
	if conf.ResourceURL != "" {
		mux.HandleFunc(wellKnown+"/", e.serveMetadata)
	}
	return mux
}

// senderKey is the key of the sender in the context of a request.
type senderKey struct{}

// ServeHTTP passes requests on that have a token which the cluster accepts. It rejects requests of web pages: a page whose host name was
// made to resolve to this server's address still sends its own origin.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if origin := r.Header.Get("Origin"); origin != "" && !slices.Contains(e.AllowedOrigins, origin) {
		e.reject(w, http.StatusForbidden, "origin", "requests from web pages are not allowed: --allowed-origins lists the exceptions")
		return
	}
	user, err := e.authenticator.authenticate(r)
	if err != nil {
		e.rejectToken(w, r, err)
		return
	}
	defer limits.Authenticated(r.Context(), user.Tenant)()
	namespace, view := e.place(r)
	if view == "" {
		e.reject(w, http.StatusNotFound, "view", "the path ends in files, run or all, or in the namespace: there are no other tools")
		return
	}
	if namespace == "" {
		e.reject(w, http.StatusNotFound, "namespace", "name the namespace in the path, as in /mcp/NAMESPACE: this server has no default namespace")
		return
	}
	if err := identity.CheckNamespace(namespace); err != nil {
		e.reject(w, http.StatusNotFound, "namespace", err.Error())
		return
	}
	from := &sender{requester: user.In(namespace), view: view, request: r.Context()}
	e.serve(w, r.WithContext(context.WithValue(r.Context(), senderKey{}, from)), from)
}

// place returns the namespace and the tools that the path of a request names; no view if it names another one. With a namespace for /mcp,
// /mcp/files and /mcp/run are its views: /mcp/files/all is the namespace of that name.
func (e *endpoint) place(r *http.Request) (namespace string, view tools.View) {
	namespace, view = r.PathValue("namespace"), tools.View(r.PathValue("view"))
	switch isView := slices.Contains(tools.Views(), tools.View(namespace)); {
	case view != "" && !slices.Contains(tools.Views(), view):
		return namespace, ""
	case view == "" && isView && e.Namespace != "":
		return e.Namespace, tools.View(namespace)
	default:
		return cmp.Or(namespace, e.Namespace), cmp.Or(view, tools.All)
	}
}

// rejectToken answers a request that could not be authenticated.
func (e *endpoint) rejectToken(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case isTokenError(err):
		w.Header().Set("WWW-Authenticate", e.challenge(r.URL.Path, !errors.Is(err, errNoToken)))
		e.reject(w, http.StatusUnauthorized, "token", err.Error())
	case errors.Is(err, limits.ErrSourceBusy):
		e.rejectForNow(w, http.StatusTooManyRequests, "busy", err.Error())
	case errors.Is(err, limits.ErrBusy), errors.Is(err, context.Canceled):
		e.rejectForNow(w, http.StatusServiceUnavailable, "busy", limits.ErrBusy.Error())
	default:
		e.apiErrors.Do(func() { e.server.options.Log.Warn("a token could not be checked", "error", err.Error()) })
		e.rejectForNow(w, http.StatusServiceUnavailable, "api", "the token can't be checked at the moment: try again")
	}
}

// withTokenInfo passes the sender of a request to the SDK, which binds sessions to the user who opened them.
func withTokenInfo(next http.Handler) http.Handler {
	return auth.RequireBearerToken(func(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
		from, ok := ctx.Value(senderKey{}).(*sender)
		if !ok {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{UserID: from.requester.Key(), Extra: map[string]any{extraSender: from}}, nil
	}, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
}

// serve passes an authenticated request to the protocol.
func (e *endpoint) serve(w http.ResponseWriter, r *http.Request, from *sender) {
	memory, ok := e.requestBytes.Acquire(requestBytes(r.ContentLength), from.requester.Tenant, from.requester.User)
	if !ok {
		e.rejectForNow(w, http.StatusTooManyRequests, "requests", "too many or too large requests are being served: wait until others have finished")
		return
	}
	defer memory.Release()
	size, err := readBody(w, r)
	if err != nil {
		status := http.StatusBadRequest
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			status = http.StatusRequestEntityTooLarge
		}
		e.reject(w, status, "body", err.Error())
		return
	}
	memory.Shrink(requestBytes(size))
	timed := serving.NewTimedWriter(w, writeTimeout)
	defer timed.Finish()
	e.route(timed, r, from)
}

// route passes a request to the handler of its version of the protocol.
func (e *endpoint) route(w http.ResponseWriter, r *http.Request, from *sender) {
	id := r.Header.Get(sessionHeader)
	switch {
	case r.Header.Get(protocolHeader) >= sessionless:
		e.stateless.ServeHTTP(w, r)
	case id == "" && r.Method == http.MethodPost:
		e.openSession(w, r, from)
	case id == "":
		e.reject(w, http.StatusBadRequest, "session", "name the session in the header "+sessionHeader)
	default:
		e.serveSession(w, r, from, id)
	}
}

// serveSession passes a request on that belongs to a session.
func (e *endpoint) serveSession(w http.ResponseWriter, r *http.Request, from *sender, id string) {
	conversations := e.server.conversations
	client := conversations.find(id, from.requester)
	if client == nil {
		// The answer is the same for another user's session and for none, so it reveals nothing about other users.
		e.reject(w, http.StatusNotFound, "session", "no such session: open one with initialize")
		return
	}
	switch r.Method {
	case http.MethodDelete:
		// The SDK refuses some of these requests, and keeps the session then: without a place, it would count as none.
		conversations.renew(client, from.requester)
		conversations.close(client)
		w.WriteHeader(http.StatusNoContent)
		return
	case http.MethodGet:
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(e.closing, cancel)()
		r = r.WithContext(ctx)
	}
	e.stateful.ServeHTTP(w, r)
}

// openSession passes a request on that may open a session.
func (e *endpoint) openSession(w http.ResponseWriter, r *http.Request, from *sender) {
	// One that is opened takes a place of its own.
	place, ok := e.server.conversations.places.Acquire(1, from.requester.Tenant, from.requester.User)
	if !ok {
		w.Header().Set("Retry-After", "10")
		e.reject(w, http.StatusServiceUnavailable, "sessions", fmt.Sprintf(
			"too many open sessions (limits: %d in total, %d for one tenant, %d for one user): close one, or try again later",
			e.MaxSessions, e.MaxSessionsPerTenant, e.MaxSessionsPerUser))
		return
	}
	place.Release()
	e.stateful.ServeHTTP(w, r)
}

// requestBytes is what a request counts whose body has the given length. A negative length is unknown.
func requestBytes(length int64) int64 {
	if length < 0 {
		return maxBody
	}
	return min(max(length, minRequestBytes), maxBody)
}

// readBody reads the whole body, in bounded time and memory, and returns its length. The HTTP server notices a lost
// connection only after the body was read.
func readBody(w http.ResponseWriter, r *http.Request) (int64, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_ = control.SetReadDeadline(time.Time{})
	if err != nil {
		return 0, fmt.Errorf("read the request: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return int64(len(body)), nil
}

// rejectForNow rejects a request that may succeed a moment later.
func (e *endpoint) rejectForNow(w http.ResponseWriter, status int, reason, message string) {
	w.Header().Set("Retry-After", "1")
	e.reject(w, status, reason, message)
}

func (e *endpoint) reject(w http.ResponseWriter, status int, reason, message string) {
	e.server.options.Metrics.rejected.WithLabelValues(reason).Inc()
	http.Error(w, message, status)
}
