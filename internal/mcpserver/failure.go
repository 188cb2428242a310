package mcpserver

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
)

// failure is the failure of a tool, with what its answer says.
type failure struct {
	// reason and message follow from the cause if they are empty: they are the API server's. The message says what to correct.
	reason, message string
	// call and session are what the failure is about, if there is something.
	call, session string
	// mayHaveRun is false if certainly nothing ran.
	mayHaveRun bool
	cause      error
}

func (f *failure) Error() string {
	if f.message == "" {
		return f.cause.Error()
	}
	return f.message
}

func (f *failure) Unwrap() error { return f.cause }

// notCreated means that the call or session certainly was not created.
func notCreated(err error) error { return &failure{cause: err} }

// notChanged means that a call or session was to be ended, and that it may go on.
func notChanged(call, session string, err error) error {
	return &failure{call: call, session: session, cause: err, mayHaveRun: isResponseLost(err)}
}

// notReady means that a session was created, or may have been, and that nobody knows what became of it.
func notReady(session string, err error) error {
	message := fmt.Sprintf("session %s may have been started, and may not be ready: %s", session, err)
	return &failure{reason: reply.ReasonUnknown, message: bounds.Text(message, reply.MaxMessage), session: session, mayHaveRun: true, cause: err}
}

// unknownOutcome means that the call was created, or may have been, and that its outcome is unknown.
func unknownOutcome(call types.NamespacedName, err error) error {
	reason := reply.ReasonUnknown
	if errors.Is(err, follow.ErrDeleted) || apierrors.IsNotFound(err) {
		reason = reply.ReasonDeleted
	}
	return &failure{reason: reason, call: call.Name, mayHaveRun: true, cause: err, message: fmt.Sprintf(
		"the outcome of call %s in namespace %s is unknown, and its command may have run: %s", call.Name, call.Namespace, bounds.Text(err.Error(), reply.MaxMessage))}
}

// stillRunning means that the server doesn't wait any longer for a call, which goes on.
func stillRunning(call string) error {
	return &failure{reason: reply.ReasonNotFinished, call: call, mayHaveRun: true, message: fmt.Sprintf(
		"call %s goes on: send the same request with the same request_id to get its result, or use get_call; cancel_call stops it", call)}
}

// isFailure reports whether an error says itself what has failed.
func isFailure(err error) bool {
	_, is := errors.AsType[*failure](err)
	return is
}

// resultOfError returns the result of a tool that failed with an error. One that only reads can be used again in any case.
func resultOfError(who *identity.Requester, err error, readOnly bool) *reply.Result {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = &failure{reason: reply.ReasonUnknown, message: bounds.Text(err.Error(), reply.MaxMessage), mayHaveRun: true}
	}
	r := &reply.Result{Output: f.message, Reason: f.reason, RetrySafe: ptr.To(readOnly || !f.mayHaveRun), Call: f.call, Session: f.session}
	if r.Output == "" {
		r.Output = reply.OwnWords(explain(who, f.cause))
	}
	if r.Reason == "" {
		r.Reason = apiReason(f.cause)
	}
	return r
}

// apiReason returns the API server's reason for an error.
func apiReason(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	return reply.ReasonUnknown
}

// explain adds how to correct an error of the API server.
func explain(who *identity.Requester, err error) string {
	text := bounds.Text(err.Error(), reply.MaxMessage)
	switch {
	case identity.IsNotEntrusted(err):
		return fmt.Sprintf("this server may not act for %s in namespace %s. An administrator can bind the ClusterRole toolcall-mcp-calls to its account "+
			"there. Error of the API server: %s", who.User, who.Namespace, text)
	case follow.NotInstalled(err):
		return "this cluster doesn't serve toolcall.dev: install the operator, or choose another cluster. Error of the API server: " + text
	case follow.LacksRight(err):
		return fmt.Sprintf("%s has no permission to do this in namespace %s. An administrator can bind the ClusterRole toolcall-user there, "+
			"and a Role with the verb use on the tools that are needed. Error of the API server: %s", who.User, who.Namespace, text)
	case apierrors.IsUnauthorized(err):
		return "the cluster doesn't accept the credentials any more: sign in again, or send a new token. Error of the API server: " + text
	default:
		return text
	}
}
