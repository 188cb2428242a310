package console

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/internal/bounds"
)

const (
	// maxError bounds an answer that is an error, and maxMessage its message.
	maxError   = 64 << 10
	maxMessage = 4 << 10
	maxCauses  = 16
)

// reasons of the errors that the console itself answers with.
var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest: metav1.StatusReasonBadRequest, http.StatusUnauthorized: metav1.StatusReasonUnauthorized,
	http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound,
	http.StatusMethodNotAllowed: metav1.StatusReasonMethodNotAllowed, http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
	http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge, http.StatusUnsupportedMediaType: metav1.StatusReasonUnsupportedMediaType,
	http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable, http.StatusGatewayTimeout: metav1.StatusReasonTimeout,
}

// reject answers with an error of the console's own, in the form that the API server's errors have.
func reject(w http.ResponseWriter, code int, message string) {
	writeStatus(w, &metav1.Status{Reason: reasons[code], Message: "console: " + message, Code: int32(code)})
}

func writeStatus(w http.ResponseWriter, s *metav1.Status) {
	s.Kind, s.APIVersion, s.Status = "Status", "v1", metav1.StatusFailure
	raw, _ := json.Marshal(s)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(raw)))
	w.WriteHeader(int(s.Code))
	_, _ = w.Write(raw)
}

// passError passes an error on: its code, reason and message. What isn't an error of Kubernetes loses its text, which is that of a
// proxy or load balancer on the way.
func passError(w http.ResponseWriter, from *http.Response) {
	if from.StatusCode < 400 || from.StatusCode > 599 {
		reject(w, http.StatusBadGateway, "the API server answered with code "+strconv.Itoa(from.StatusCode))
		return
	}
	if seconds, err := strconv.ParseUint(from.Header.Get("Retry-After"), 10, 16); err == nil {
		w.Header().Set("Retry-After", strconv.FormatUint(seconds, 10))
	}
	raw, _ := io.ReadAll(io.LimitReader(from.Body, maxError))
	read := &metav1.Status{}
	if err := json.Unmarshal(raw, read); err != nil || read.Kind != "Status" {
		reject(w, from.StatusCode, "the API server answered with code "+strconv.Itoa(from.StatusCode)+" and gave no reason")
		return
	}
	s := &metav1.Status{Reason: read.Reason, Message: bounds.Text(read.Message, maxMessage), Code: int32(from.StatusCode)}
	if d := read.Details; d != nil {
		s.Details = &metav1.StatusDetails{RetryAfterSeconds: d.RetryAfterSeconds, Causes: d.Causes[:min(len(d.Causes), maxCauses)]}
	}
	writeStatus(w, s)
}
