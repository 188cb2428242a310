package console

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// refusedBodyTimeout bounds how long the server reads on from a request that it refused.
const refusedBodyTimeout = 5 * time.Second

// otherRequests are those that are served besides the requests to the API server: for the page's files, and refusals.
const otherRequests = 256

// handler serves the page and passes its reads and its decisions on.
type handler struct {
	hosts []string
	page  page
	proxy *proxy
	// served has the requests that are served, those that a client takes slowly among them.
	served chan struct{}
}

// NewHandler returns what serves browsers. Watches and follows end with the context.
func NewHandler(ctx context.Context, o *Options, api *rest.Config, log *slog.Logger) (http.Handler, error) {
	p, err := newProxy(ctx, o, api, log)
	if err != nil {
		return nil, err
	}
	h := &handler{page: newPage(), proxy: p, served: make(chan struct{}, o.MaxRequests+otherRequests)}
	for _, host := range o.Hosts {
		h.hosts = append(h.hosts, strings.ToLower(host))
	}
	return h, nil
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case h.served <- struct{}{}:
		defer func() { <-h.served }()
	default:
		panic(http.ErrAbortHandler) // To write an answer takes what there is too little of.
	}
	setHeaders(w.Header())
	if code, message := h.refusal(r); code != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedBodyTimeout))
		w.Header().Set("Connection", "close")
		reject(w, code, message)
		return
	}
	if !strings.HasPrefix(r.URL.Path, apiPrefix) {
		h.page.ServeHTTP(w, r)
		return
	}
	if isDecision(r) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(decisionTimeout)) // Of its body, read or not.
	}
	if err := checkSite(r); err != nil {
		reject(w, http.StatusForbidden, err.Error())
		return
	}
	h.proxy.ServeHTTP(w, r)
}

// refusal says why a request isn't served, whatever it asks for; 0 when it is.
func (h *handler) refusal(r *http.Request) (code int, message string) {
	switch {
	case !isHost(r.Host, h.hosts):
		return http.StatusMisdirectedRequest, "this isn't the host of the console: --hosts lists the names under which it is reached"
	case r.Header.Get("Upgrade") != "":
		return http.StatusBadRequest, "a request may not ask for another protocol"
	case isDecision(r):
		return refusalOfDecision(r)
	case r.Method != http.MethodGet:
		return http.StatusMethodNotAllowed, "the method must be GET: the console writes ToolCallApprovals of a namespace and nothing else"
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return http.StatusBadRequest, "a request may not have a body"
	default:
		return 0, ""
	}
}
