package subresources

import (
	"errors"
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

// transferTypes are the types of transfers, by method.
var transferTypes = map[string]string{
	http.MethodGet: "Download", http.MethodPut: "Upload", http.MethodDelete: "Delete", http.MethodPost: "Input",
}

// serveAudited serves a request, and has a record written of each by a user who may use the session, whatever becomes of it: others
// could fill the log, so that what matters is dropped from it. A question about a file moves nothing.
func (p *proxy) serveAudited(q *exchange, serve func(*exchange) error) (err error) {
	if p.record == nil || transferTypes[q.r.Method] == "" {
		return serve(q)
	}
	isOver := false
	defer func() {
		if q.session != nil {
			p.record(p.transferRecord(q, outcomeOf(q.peer, err, isOver && !q.brokeOff)))
		}
	}()
	err = serve(q)
	isOver = true
	return err
}

// transferRecord is the record of a request.
func (p *proxy) transferRecord(q *exchange, outcome *audit.Outcome) audit.Record {
	session, parameters := q.session, q.r.URL.Query()
	record := audit.Record{
		Schema: audit.Schema, ID: "transfer/" + string(uuid.NewUUID()), Time: metav1.NewMicroTime(p.clock.Now()), Kind: audit.KindTransfer,
		Namespace: q.object.Namespace, Name: q.object.Name, UID: string(session.UID),
		Who:     audit.NewWho(q.who.GetName(), q.who.GetUID(), q.who.GetGroups()),
		What:    &audit.What{Type: transferTypes[q.r.Method], Path: bounds.PathEnd(parameters.Get(parameterPath), maxAuditedPath), Call: bounds.Text(parameters.Get(parameterCall), maxAuditedCall)},
		Where:   &audit.Where{Session: q.object.Name, Pod: session.Status.Pod, Node: session.Status.Node},
		Outcome: outcome,
	}
	record.What.SHA256 = strings.Trim(q.Header().Get("ETag"), `"`)
	if env := session.Status.Environment; env != nil {
		record.Where.Environment = env.Name
	}
	return record
}

// outcomeOf is what became of a request. One that isn't over broke off.
func outcomeOf(c *peer, err error, isOver bool) *audit.Outcome {
	outcome := &audit.Outcome{Status: c.status, Bytes: c.slot.moved.Load()}
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
