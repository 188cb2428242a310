package subresources

import (
	"context"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/audit"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/review"
)

// sessionResource is what sessions are to RBAC.
var sessionResource = v1alpha1.GroupVersion.WithResource("toolsessions").GroupResource()

// proxy serves what is in the pods of sessions.
type proxy struct {
	rules    *sessionRules
	reviewer *review.Reviewer
	runners  *dispatch.Hub
	// forwarder passes requests on to the leader, which the runners are connected to; nil when that is here.
	forwarder *forwarder
	// sessions counts the transfers of each session.
	sessions *fair.Counter[types.NamespacedName]
	// record has a record of a transfer written; nil for none.
	record func(audit.Record)
	clock  clock.WithTicker
	log    logr.Logger
}

// serve answers a request. Nothing has been written when it returns an error.
func (p *proxy) serve(q *exchange) error {
	var serve func(*exchange) error
	switch {
	case q.path == "files" && q.r.Method != http.MethodPost:
		serve = p.serveFiles
	case q.path == "files":
		return statusError(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, nil, "files are read with GET, written with PUT and deleted with DELETE")
	case q.path == "input" && q.r.Method == http.MethodPost:
		serve = p.serveInput
	case q.path == "input":
		return statusError(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, nil, "input is sent with POST")
	default:
		return statusError(http.StatusNotFound, metav1.StatusReasonNotFound, nil, "of a session there are proxy/files and proxy/input")
	}
	if p.forwarder.isNeeded() {
		// The leader asks all that there is to ask.
		return p.forwarder.serve(q, false)
	}
	began := p.clock.Now()
	err := p.serveAudited(q, serve)
	p.log.V(1).Info("Served a session's files or input", "session", q.object, "what", q.path, "method", q.r.Method, "failed", err != nil,
		"duration", p.clock.Since(began).Round(time.Millisecond).String())
	return err
}

// enterSession takes one of the session's places, for a user who may have it. The caller calls leave when the request has ended.
func (p *proxy) enterSession(session types.NamespacedName) (leave func(), err error) {
	place, ok := p.sessions.Acquire(1, session)
	if !ok {
		return nil, tooMany("too many transfers at the same time: %d requests of the session", maxTransfersPerSession)
	}
	return place.Release, nil
}

// open finds a session that the user may use.
func (p *proxy) open(ctx context.Context, q *exchange) error {
	session, err := p.rules.get(ctx, q.object)
	if err == nil {
		err = p.rules.checkUse(ctx, q.who, session)
	}
	if err == nil {
		q.session = session
	}
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
