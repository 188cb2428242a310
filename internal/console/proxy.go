package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"

	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/serving"
	"toolcall.dev/operator/internal/serving/limits"
)

const (
	// userAgent names this program in the audit log of the API server.
	userAgent = "toolcall-console"

	// maxObjects bounds an answer with objects. The largest object is some MiB as JSON.
	maxObjects = 64 << 20
	// apiErrorLogInterval bounds how often an unreachable API server is logged.
	apiErrorLogInterval = 10 * time.Second
)

// accepted is the type of each kind of answer.
var accepted = map[answer]string{objects: "application/json", rows: "application/json;as=Table;v=v1;g=meta.k8s.io", stream: "*/*"}

// passed are the headers of answers with output that go on, and what they look like.
var passed = map[string]*regexp.Regexp{
	"Toolcall-Uid":      regexp.MustCompile(`^[0-9a-f-]{1,64}$`),
	"Toolcall-Offset":   regexp.MustCompile(`^[0-9]{1,19}$`),
	"Toolcall-Bytes":    regexp.MustCompile(`^[0-9]{1,19}$`),
	"Toolcall-Complete": regexp.MustCompile(`^(true|false)$`),
	"Toolcall-Sha256":   regexp.MustCompile(`^[0-9a-f]{64}$`),
	"Toolcall-Missing":  regexp.MustCompile(`^[0-9]{1,19}-[0-9]{1,19}$`),
}

// proxy passes reads and decisions on to the API server, with the token of each request.
type proxy struct {
	api       *url.URL
	transport http.RoundTripper
	// slots bound the requests that are served at the same time, in all and for one token.
	slots     *fair.Counter[tokenKey]
	timeouts  timeouts
	log       *slog.Logger
	apiErrors *rate.Sometimes
	// closing ends watches and follows.
	closing context.Context
}

// newProxy returns a proxy to the API server of a connection. It uses none of the connection's credentials.
func newProxy(ctx context.Context, o *Options, conf *rest.Config, log *slog.Logger) (*proxy, error) {
	anonymous := rest.AnonymousClientConfig(conf)
	// API servers close HTTP/2 connections on which a token was rejected, with the watches of other users on them. Over HTTP/1.1
	// each request has a connection to itself.
	anonymous.NextProtos = []string{"http/1.1"}
	anonymous.UserAgent = userAgent
	// What is passed on is counted as it is.
	anonymous.DisableCompression = true
	api, _, err := rest.DefaultServerUrlFor(anonymous)
	if err != nil {
		return nil, fmt.Errorf("read the API server's address: %w", err)
	}
	transport, err := rest.TransportFor(anonymous)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return &proxy{
		api: api, transport: transport, timeouts: o.timeouts(), log: log, closing: ctx,
		slots:     fair.NewCounter[tokenKey](int64(o.MaxRequests), int64(o.MaxRequestsPerToken)),
		apiErrors: &rate.Sometimes{First: 1, Interval: apiErrorLogInterval},
	}, nil
}

// ServeHTTP passes a request on that is allowed.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := serving.BearerToken(r)
	if token == "" {
		reject(w, http.StatusUnauthorized, "the request has no token, or one that isn't well-formed")
		return
	}
	t, err := parseRequest(w, r)
	switch {
	case errors.Is(err, errNotServed):
		reject(w, http.StatusNotFound, err.Error())
		return
	case err != nil:
		reject(w, http.StatusBadRequest, err.Error())
		return
	}
	slot, ok := p.slots.Acquire(1, keyOf(token))
	if !ok {
		w.Header().Set("Retry-After", "1")
		reject(w, http.StatusTooManyRequests, "too many requests are being served: close other pages, or try again later")
		return
	}
	defer slot.Release()
	p.pass(w, r, t, token)
}

// parseRequest returns what the API server gets for a request.
func parseRequest(w http.ResponseWriter, r *http.Request) (*target, error) {
	if r.Method == http.MethodPost {
		return parseDecision(w, r)
	}
	return parseTarget(r.URL)
}

// pass sends the request and passes the answer on.
func (p *proxy) pass(w http.ResponseWriter, r *http.Request, t *target, token string) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	headers := time.AfterFunc(p.timeouts.headers, func() { cancel(context.DeadlineExceeded) })
	defer headers.Stop()
	defer context.AfterFunc(p.closing, func() { cancel(errOver) })()

	if t.decision != nil && !p.sign(ctx, w, t, token) {
		return
	}
	response := p.ask(ctx, w, t, token)
	if response == nil {
		return
	}
	defer response.Body.Close()
	holder := keyOf(token)
	defer limits.Authenticated(r.Context(), string(holder[:]))()
	headers.Stop()
	limit := bodyTimeout
	if t.endless {
		limit = maxStream + streamGrace
	}
	body := time.AfterFunc(limit, func() { cancel(errOver) })
	defer body.Stop()

	describe(w.Header(), response.Header, t)
	err := p.copyBody(w, response.Body, t)
	// A watch or a follow that the console ends has a clean end: the page goes on with another. Anything else that is cut short
	// is an error for the client too.
	if err != nil && (!t.endless || !errors.Is(context.Cause(ctx), errOver)) {
		panic(http.ErrAbortHandler)
	}
}

// ask returns the API server's answer, if it is the one that is asked for. Otherwise it answers the client, and returns nil.
func (p *proxy) ask(ctx context.Context, w http.ResponseWriter, t *target, token string) *http.Response {
	response, err := p.send(ctx, t, token)
	if err != nil {
		p.rejectUpstream(ctx, w, err)
		return nil
	}
	isJSON := strings.HasPrefix(response.Header.Get("Content-Type"), "application/json")
	switch {
	case response.StatusCode != t.success():
		passError(w, response)
	case t.answer != stream && !isJSON:
		reject(w, http.StatusBadGateway, "the API server's answer isn't JSON")
	default:
		return response
	}
	_ = response.Body.Close()
	return nil
}

// errOver says that the console ends a request: its time is over, or the server stops.
var errOver = errors.New("the request is over")

// send makes the request that the API server gets: of its parts, only the target and the token come from the client.
func (p *proxy) send(ctx context.Context, t *target, token string) (*http.Response, error) {
	where := *p.api
	where.Path = strings.TrimSuffix(where.Path, "/") + t.path
	where.RawQuery = t.query.Encode()
	method, body := http.MethodGet, io.Reader(nil)
	if t.body != nil {
		method, body = http.MethodPost, bytes.NewReader(t.body)
	}
	request, err := http.NewRequestWithContext(ctx, method, where.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if t.body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept-Encoding", "identity")
	request.Header.Set("Accept", accepted[t.answer])
	// The transport follows no redirect.
	return p.transport.RoundTrip(request)
}

// rejectUpstream answers a request that the API server didn't.
func (p *proxy) rejectUpstream(ctx context.Context, w http.ResponseWriter, err error) {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, context.DeadlineExceeded):
		p.apiErrors.Do(func() { p.log.Warn("the API server doesn't answer in time", "timeout", p.timeouts.headers) })
		reject(w, http.StatusGatewayTimeout, "the API server doesn't answer in time")
	case errors.Is(cause, errOver):
		reject(w, http.StatusServiceUnavailable, "the console stops: try again")
	case cause != nil:
		panic(http.ErrAbortHandler) // The client is gone.
	default:
		p.apiErrors.Do(func() { p.log.Warn("the API server can't be reached", "error", err.Error()) })
		w.Header().Set("Retry-After", "1")
		reject(w, http.StatusBadGateway, "the API server can't be reached")
	}
}

// describe sets the headers of an answer that is passed on.
func describe(to, from http.Header, t *target) {
	if t.answer != stream {
		to.Set("Content-Type", "application/json")
		return
	}
	to.Set("Content-Type", "application/octet-stream")
	to.Set("Content-Disposition", "attachment")
	for name, form := range passed {
		if value := from.Get(name); form.MatchString(value) {
			to.Set(name, value)
		}
	}
}

// copyBody passes a body on as it comes. A client that takes nothing for long ends it.
func (p *proxy) copyBody(w http.ResponseWriter, body io.ReadCloser, t *target) error {
	to := liveWriter{serving.NewTimedWriter(w, p.timeouts.write)}
	// The end is written after this returned.
	defer to.Finish()
	if err := to.FlushError(); err != nil {
		return err
	}
	if !t.endless {
		body = http.MaxBytesReader(nil, body, maxObjects)
	}
	_, err := io.Copy(to, body)
	return err
}

// liveWriter sends what is written at once.
type liveWriter struct{ *serving.TimedWriter }

func (l liveWriter) Write(data []byte) (int, error) {
	n, err := l.TimedWriter.Write(data)
	if err != nil {
		return n, err
	}
	return n, l.FlushError()
}
