package subresources

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"toolcall.dev/operator/internal/output"
)

// Reasons of errors that Kubernetes has no name for.
const (
	// ReasonRangeNotSatisfiable says that a stream has no byte at the offset, or has none there yet.
	ReasonRangeNotSatisfiable metav1.StatusReason = "RangeNotSatisfiable"
	// ReasonNotKept says that the bytes at the offset, or all of the stream, aren't kept (any more).
	ReasonNotKept metav1.StatusReason = "OutputNotKept"
)

// CauseNextOffset is the type of the cause that has the offset at which a client goes on behind the part that wasn't kept.
const CauseNextOffset metav1.CauseType = "NextOffset"

// retryAfterSeconds is when a client asks again for what isn't there for the moment.
const retryAfterSeconds = 1

func statusError(code int32, reason metav1.StatusReason, details *metav1.StatusDetails, format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Details: details, Message: fmt.Sprintf(format, args...),
	}}
}

func rangeNotSatisfiable(offset int64, info output.Info) error {
	return statusError(http.StatusRequestedRangeNotSatisfiable, ReasonRangeNotSatisfiable, nil,
		"the stream has no byte at offset %d: it has %d bytes", offset, info.Bytes)
}

func notKept(offset, next int64) error {
	details := &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: CauseNextOffset, Message: fmt.Sprint(next)}}}
	return statusError(http.StatusGone, ReasonNotKept, details,
		"the stream's bytes from offset %d up to %d were not kept: go on at %d", offset, next, next)
}

func damaged(offset int64) error {
	return statusError(http.StatusGone, ReasonNotKept, nil, "what the output store has at offset %d isn't what was stored: it is damaged", offset)
}

func streamNotKept(query *logRequest) error {
	if query.artifact != "" {
		return statusError(http.StatusGone, ReasonNotKept, nil, "the call's artifact %q is not kept", query.artifact)
	}
	return statusError(http.StatusGone, ReasonNotKept, nil, "the call's %s is not kept", query.stream)
}

func unavailable(format string, args ...any) error {
	return statusError(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
		&metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}, format, args...)
}

func isUnavailable(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonServiceUnavailable
}
