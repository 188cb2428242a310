package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/client-go/rest"
)

const (
	// maxBody bounds a request: the largest call that the API takes fits, escaped.
	maxBody = 4 << 20
	// bodyTimeout bounds the time that a request's body may take to arrive.
	bodyTimeout = 30 * time.Second

	sessionHeader  = "Mcp-Session-Id"
	protocolHeader = "Mcp-Protocol-Version"
	// sessionless is the first version of the protocol whose requests stand for themselves.
	sessionless = "2026-07-28"
)

// Endpoint says whom the HTTP endpoint serves and how much of it one user gets.
type Endpoint struct {
	// API leads to the API server. Its credentials, if it has any, aren't used.
	API *rest.Config
	// Namespace of calls at /mcp; at /mcp/NAMESPACE it is in the path. Empty: there are only those.
	Namespace string
	// AllowedOrigins are web pages' origins, such as https://example.com, that may send requests. Agents send none.
	AllowedOrigins                  []string
	MaxSessions, MaxSessionsPerUser int
	SessionTimeout                  time.Duration
}

// endpoint is the HTTP side of a server.
type endpoint struct {
	Endpoint
	server   *Server
	who      *authenticator
	sessions *sessions
	// protocol and requests serve sessions, and the versions of the protocol that have none.
	protocol, requests http.Handler
	// closing ends the streams that would stay open for ever.
	closing context.Context
}

// Handler serves the protocol over HTTP. Streams that only wait end with the context.
func (s *Server) Handler(ctx context.Context, conf Endpoint) http.Handler {
	e := &endpoint{
		Endpoint: conf, server: s, who: newAuthenticator(conf.API), closing: ctx,
		sessions: newSessions(conf.MaxSessions, conf.MaxSessionsPerUser, s.mcp.Sessions),
	}
	s.mcp.AddReceivingMiddleware(e.sessions.register)
	s.options.Metrics.watchSessions(e.sessions.count)
	same := func(*http.Request) *mcp.Server { return s.mcp }
	e.protocol = e.known(mcp.NewStreamableHTTPHandler(same, &mcp.StreamableHTTPOptions{
		SessionTimeout: conf.SessionTimeout, MaxRequestBodyBytes: maxBody, Logger: s.options.Log,
	}))
	e.requests = e.known(mcp.NewStreamableHTTPHandler(same, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: maxBody, Logger: s.options.Log,
	}))
	mux := http.NewServeMux()
	mux.Handle("/mcp", e.checked(e.authenticated(conf.Namespace)))
	mux.Handle("/mcp/{namespace}", e.checked(e.authenticated("")))
	return mux
}

// checked lets no web page in that isn't meant to: a page that had its name resolve to this server's address
// sends its own origin all the same.
func (e *endpoint) checked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if origin := r.Header.Get("Origin"); origin != "" && !slices.Contains(e.AllowedOrigins, origin) {
			e.refuse(w, http.StatusForbidden, "origin", "requests of web pages are refused; --allowed-origins lists the origins that may send them")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// callerKey finds the caller and the user's key in a request's context.
type callerKey struct{}

// requester is who sent a request, and where to.
type requester struct {
	caller *Caller
	// key is the same for all tokens of one user, and differs from namespace to namespace.
	key string
}

// authenticated lets a request with a token of the cluster's through.
func (e *endpoint) authenticated(namespace string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := e.who.authenticate(r)
		switch {
		case unauthenticated(err):
			challenge(w, err)
			e.refuse(w, http.StatusUnauthorized, "token", err.Error())
			return
		case err != nil:
			e.server.options.Log.Warn("a token could not be checked", "error", err.Error())
			w.Header().Set("Retry-After", "1")
			e.refuse(w, http.StatusServiceUnavailable, "api", "the token can't be checked at the moment: try again")
			return
		}
		in := namespace
		if named := r.PathValue("namespace"); named != "" {
			in = named
		}
		if in == "" {
			e.refuse(w, http.StatusNotFound, "namespace", "say in which namespace, as in /mcp/NAMESPACE: this server has no default one")
			return
		}
		if err := checkNamespace(in); err != nil {
			e.refuse(w, http.StatusNotFound, "namespace", err.Error())
			return
		}
		from := &requester{caller: who.caller(in, who.username), key: strings.Join([]string{who.username, who.uid, in}, "\x00")}
		e.serve(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, from)), from)
	})
}

// challenge is RFC 6750's: without a token there is no error yet.
func challenge(w http.ResponseWriter, err error) {
	value := `Bearer realm="toolcall"`
	if !errors.Is(err, errNoToken) {
		value += `, error="invalid_token"`
	}
	w.Header().Set("WWW-Authenticate", value)
}

// known tells the SDK who sent a request; it holds sessions to the user who began them.
func (e *endpoint) known(next http.Handler) http.Handler {
	return auth.RequireBearerToken(func(ctx context.Context, _ string, r *http.Request) (*auth.TokenInfo, error) {
		from, ok := ctx.Value(callerKey{}).(*requester)
		if !ok {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{UserID: from.key, Extra: map[string]any{
			extraCaller: from.caller, extraRequest: r.Context(),
		}}, nil
	}, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
}

// serve hands an authenticated request to the protocol.
func (e *endpoint) serve(w http.ResponseWriter, r *http.Request, from *requester) {
	if err := readBody(w, r); err != nil {
		e.refuse(w, bodyStatus(err), "body", err.Error())
		return
	}
	session := r.Header.Get(sessionHeader)
	switch {
	case r.Header.Get(protocolHeader) >= sessionless:
		e.requests.ServeHTTP(w, r)
	case session == "" && r.Method == http.MethodPost:
		e.begin(w, r, from)
	case session != "" && !e.sessions.owned(session, from.key):
		// The same answer whether it is another user's or nobody's: it tells nothing about other users.
		e.refuse(w, http.StatusNotFound, "session", "no such session: begin one with initialize")
	case r.Method == http.MethodDelete:
		e.server.inFlight.end(session)
		e.protocol.ServeHTTP(w, r)
	case r.Method == http.MethodGet:
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(e.closing, cancel)()
		e.protocol.ServeHTTP(w, r.WithContext(ctx))
	default:
		e.protocol.ServeHTTP(w, r)
	}
}

// begin lets a request through that may begin a session.
func (e *endpoint) begin(w http.ResponseWriter, r *http.Request, from *requester) {
	begun, ok := e.sessions.begin(from.key)
	if !ok {
		w.Header().Set("Retry-After", "10")
		e.refuse(w, http.StatusServiceUnavailable, "sessions", fmt.Sprintf(
			"too many sessions are open, at most %d in all and %d of one user: close one, or try again later", e.MaxSessions, e.MaxSessionsPerUser))
		return
	}
	defer begun()
	e.protocol.ServeHTTP(w, r)
}

// readBody takes in the whole request, in bounded time and memory. Only then does the HTTP server notice that a
// client has gone away.
func readBody(w http.ResponseWriter, r *http.Request) error {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_ = control.SetReadDeadline(time.Time{})
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

func bodyStatus(err error) int {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusBadRequest
}

func (e *endpoint) refuse(w http.ResponseWriter, status int, reason, message string) {
	e.server.options.Metrics.refused.WithLabelValues(reason).Inc()
	http.Error(w, message, status)
}
