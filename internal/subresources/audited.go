package subresources

import (
	"errors"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"toolcall.dev/operator/internal/audit"
	"toolcall.dev/operator/internal/bounds"
)

// Bounds of what a record has of a request, in bytes of JSON.
const (
	maxAuditedPath = 4 << 10
	maxAuditedCall = 256
)

// audited is a request for a session's files or input of which a record is written.
type audited struct {
	http.ResponseWriter
	body io.ReadCloser
	// status is 0 until the answer begins.
	status         int
	sent, received int64
}

// Unwrap is what http.ResponseController looks for.
func (a *audited) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *audited) WriteHeader(code int) {
	a.status = code
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *audited) Write(p []byte) (int, error) {
	n, err := a.ResponseWriter.Write(p)
	a.sent += int64(n)
	return n, err
}

// Read implements io.Reader for what the client sends.
func (a *audited) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	a.received += int64(n)
	return n, err
}

// Close implements io.Closer.
func (a *audited) Close() error { return a.body.Close() }

// transferTypes are the types of transfers, by method.
var transferTypes = map[string]string{
	http.MethodGet: "Download", http.MethodPut: "Upload", http.MethodDelete: "Delete", http.MethodPost: "Input",
}

// serveAudited serves a request, and has a record written of each by a user who may use the session, whatever becomes of it: others
// could fill the log, so that what matters is dropped from it. A question about a file moves nothing.
func (p *proxy) serveAudited(w http.ResponseWriter, r *http.Request, q *proxied, serve func(http.ResponseWriter, *http.Request, *proxied) error) (err error) {
	if p.record == nil || transferTypes[r.Method] == "" {
		return serve(w, r, q)
	}
	a := &audited{ResponseWriter: w, body: r.Body}
	if r.Body != nil {
		r.Body = a
	}
	isOver := false
	defer func() {
		if q.found != nil {
			p.record(p.transferRecord(r, q, a, outcomeOf(a, err, isOver)))
		}
	}()
	err = serve(a, r, q)
	isOver = true
	return err
}

// transferRecord is the record of a request.
func (p *proxy) transferRecord(r *http.Request, q *proxied, a *audited, outcome *audit.Outcome) audit.Record {
	session, asked := q.found, r.URL.Query()
	record := audit.Record{
		Schema: audit.Schema, ID: "transfer/" + string(uuid.NewUUID()), Time: metav1.NewMicroTime(p.clock.Now()), Kind: audit.KindTransfer,
		Namespace: q.session.Namespace, Name: q.session.Name, UID: string(session.UID),
		Who:     audit.NewWho(q.who.GetName(), q.who.GetUID(), q.who.GetGroups()),
		What:    &audit.What{Type: transferTypes[r.Method], Path: bounds.PathEnd(asked.Get(parameterPath), maxAuditedPath), Call: bounds.Text(asked.Get(parameterCall), maxAuditedCall)},
		Where:   &audit.Where{Session: q.session.Name, Pod: session.Status.Pod, Node: session.Status.Node},
		Outcome: outcome,
	}
	record.What.SHA256 = strings.Trim(a.Header().Get("ETag"), `"`)
	if env := session.Status.Environment; env != nil {
		record.Where.Environment = env.Name
	}
	return record
}

// outcomeOf is what became of a request. One that isn't over broke off.
func outcomeOf(a *audited, err error, isOver bool) *audit.Outcome {
	outcome := &audit.Outcome{Status: a.status, Bytes: a.sent + a.received}
	var failed apierrors.APIStatus
	switch {
	case errors.As(err, &failed):
		outcome.Status, outcome.Reason = int(failed.Status().Code), string(failed.Status().Reason)
	case err != nil:
		outcome.Status, outcome.Reason = http.StatusInternalServerError, string(metav1.StatusReasonInternalError)
	case !isOver:
		outcome.Reason = "BrokeOff"
	}
	return outcome
}
