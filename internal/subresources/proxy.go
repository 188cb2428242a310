package subresources

import (
	"context"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/audit"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/host"
)

// sessionResource is what sessions are to RBAC.
var sessionResource = v1alpha1.GroupVersion.WithResource("toolsessions").GroupResource()

// Runners finds the runner that holds a key. dispatch.Hub is one.
type Runners interface {
	RunnerByKey(keyHash string) *dispatch.Runner
}

// proxy serves what is in the pods of sessions.
type proxy struct {
	rules   *sessionRules
	runners Runners
	// forwarder passes requests on to the leader, which the runners are connected to; nil when that is here.
	forwarder *forwarder
	slots     *transferSlots
	// record has a record of a transfer written; nil for none.
	record func(audit.Record)
	clock  clock.WithTicker
	log    logr.Logger
	// stopping ends when the server stops.
	stopping context.Context
}

var _ rest.Connecter = &proxy{}

// ConnectMethods are the methods of HTTP that are served.
func (p *proxy) ConnectMethods() []string {
	return []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete}
}

// NewConnectOptions has the handler read the parameters, and what follows in the path.
func (p *proxy) NewConnectOptions() (options runtime.Object, subpath bool, subpathKey string) {
	return nil, true, ""
}

// Connect returns what serves one request.
func (p *proxy) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	who, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("the user is unknown")
	}
	info, ok := request.RequestInfoFrom(ctx)
	if !ok {
		return nil, badRequest("the request can't be understood")
	}
	// toolsessions, the name, proxy, and what is meant.
	what := ""
	if len(info.Parts) == 4 {
		what = info.Parts[3]
	}
	session := types.NamespacedName{Namespace: request.NamespaceValue(ctx), Name: name}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := p.serve(w, r, &proxied{who: who, session: session, what: what}); err != nil {
			dropContentHeaders(w.Header())
			responder.Error(err)
		}
	}), nil
}

// proxied is one request.
type proxied struct {
	who     user.Info
	session types.NamespacedName
	what    string
	// found is the session; nil until it was read, and the user may use it.
	found *v1alpha1.ToolSession
}

// serve answers a request. Nothing has been written when it returns an error.
func (p *proxy) serve(w http.ResponseWriter, r *http.Request, q *proxied) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(p.stopping, cancel)()
	r = r.WithContext(ctx)
	var serve func(http.ResponseWriter, *http.Request, *proxied) error
	switch {
	case q.what == "files" && r.Method != http.MethodPost:
		serve = p.serveFiles
	case q.what == "files":
		return statusError(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, nil, "files are read with GET, written with PUT and deleted with DELETE")
	case q.what == "input" && r.Method == http.MethodPost:
		serve = p.serveInput
	case q.what == "input":
		return statusError(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, nil, "input is sent with POST")
	default:
		return statusError(http.StatusNotFound, metav1.StatusReasonNotFound, nil, "of a session there are proxy/files and proxy/input")
	}
	conn, err := p.slots.enterWith(w, r, q.who.GetName(), q.session.Namespace, cancel)
	if err != nil {
		return err
	}
	defer conn.slot.leave()
	if r.Body != nil {
		r.Body = conn
	}
	if p.forwarder != nil && !p.forwarder.leader.IsHere() {
		// The leader asks all that there is to ask.
		if r.Header.Get(headerForwarded) != "" {
			return unavailable("this replica isn't the leader any more")
		}
		return conn.slot.orGaveWay(p.forwarder.serve(newTimedWriter(conn, p.clock), r, q.who, forwardedFile))
	}
	began := p.clock.Now()
	err = conn.slot.orGaveWay(p.serveAudited(conn, r, q, serve))
	p.log.V(1).Info("Served a session's files or input", "session", q.session, "what", q.what, "method", r.Method, "failed", err != nil,
		"duration", p.clock.Since(began).Round(time.Millisecond).String())
	return err
}

// runnerOf finds the connection of a session's runner.
func (p *proxy) runnerOf(session *v1alpha1.ToolSession) (*dispatch.Runner, error) {
	bound := session.Status.Runner
	if session.Status.Phase == v1alpha1.SessionSuspended || session.Spec.Suspend && session.Status.Phase == v1alpha1.SessionReady {
		return nil, conflict(session.Name, "the session is suspended: a call resumes it, or spec.suspend: false if it is true")
	}
	if phase := session.Status.Phase; phase == "" || phase == v1alpha1.SessionPending {
		return nil, unavailable("the session isn't ready yet")
	}
	if session.Status.Phase != v1alpha1.SessionReady || bound == nil {
		return nil, conflict(session.Name, "the session isn't ready: its phase is %s", session.Status.Phase)
	}
	runner := p.runners.RunnerByKey(bound.KeyHash)
	if runner == nil {
		return nil, unavailable("the session's runner isn't connected to the operator at the moment")
	}
	if !host.Serves(runner, session) {
		return nil, unavailable("the session's runner hasn't begun the session yet")
	}
	return runner, nil
}
