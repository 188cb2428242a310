package subresources

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// Parameters of a request for standard input, besides the offset.
const (
	parameterCall = "call"
	parameterEOF  = "eof"
)

// HeaderInputOffset has the offset of the next byte of a call's standard input: how many it has got.
const HeaderInputOffset = "Toolcall-Input-Offset"

// maxInput is how much standard input one request has.
const maxInput = 1 << 20

// inputRequest says what a client types.
type inputRequest struct {
	call   string
	offset int64
	eof    bool
}

func parseInputRequest(r *http.Request) (*inputRequest, error) {
	values, err := parseParameters(r, parameterCall, parameterOffset, parameterEOF)
	if err != nil {
		return nil, err
	}
	q := &inputRequest{call: values.Get(parameterCall)}
	if q.call == "" {
		return nil, badRequest("parameter %s is missing: it names the call", parameterCall)
	}
	var ok bool
	if q.offset, ok = parseOffset(values.Get(parameterOffset)); !ok {
		return nil, badRequest("parameter %s is %.100q: it must be how many bytes of input the call has got", parameterOffset, values.Get(parameterOffset))
	}
	if values.Get(parameterEOF) == "" {
		return q, nil
	}
	q.eof, err = parseBool(values, parameterEOF)
	return q, err
}

// serveInput writes to the standard input of a background call.
func (p *proxy) serveInput(q *exchange) error {
	r := q.r
	asked, err := parseInputRequest(r)
	if err != nil {
		return err
	}
	if r.ContentLength > maxInput {
		return apierrors.NewRequestEntityTooLargeError("a request has at most 1048576 bytes of input: send it in parts")
	}
	ctx := r.Context()
	if err := p.open(ctx, q); err != nil {
		return err
	}
	session := q.session
	call, err := p.rules.inputCall(ctx, session, asked.call)
	if err != nil {
		return err
	}
	// Who types into a program could as well have started it, a trusted one with the right to trust alone: it keeps variables that the
	// policy blocks in others' calls.
	if call.Spec.Trusted {
		const why = `the call is trusted: to type into it takes the right to "trust" executionenvironments in this namespace, as to create it does`
		if err := p.reviewer.CheckTrust(ctx, q.who, session.Namespace, why); err != nil {
			return err
		}
	}
	if _, err := p.rules.decide(ctx, q.who, session, &call.Spec); err != nil {
		return err
	}
	runner, err := p.runnerOf(session)
	if err != nil {
		return err
	}
	leave, err := p.enterSession(q.object)
	if err != nil {
		return err
	}
	defer leave()
	transfer, err := runner.Transfer(ctx, wire.Transfer{Kind: wire.TransferInput, CallUID: string(call.UID), Offset: asked.offset, EOF: asked.eof})
	if err != nil {
		return inputFailed(q, err)
	}
	defer transfer.Close()
	f := &fileAnswer{proxy: p, exchange: q, transfer: transfer}
	if err := f.passOn(ctx, maxInput); err != nil {
		return inputFailed(q, err)
	}
	state, err := transfer.Finish(ctx)
	if err != nil {
		return inputFailed(q, err)
	}
	q.Header().Set(HeaderInputOffset, strconv.FormatInt(state.Next, 10))
	q.Header().Set("Content-Length", "0")
	q.WriteHeader(http.StatusOK)
	return nil
}

// inputCall is the call of a session whose standard input can be written.
func (s *sessionRules) inputCall(ctx context.Context, session *v1alpha1.ToolSession, name string) (*v1alpha1.ToolCall, error) {
	call, key := &v1alpha1.ToolCall{}, types.NamespacedName{Namespace: session.Namespace, Name: name}
	if err := s.snapshots.Objects.Live.Get(ctx, key, call); err != nil {
		return nil, getFailed(err, callResource, "call", key)
	}
	switch ref := call.Spec.SessionRef; {
	case ref == nil, ref.Name != session.Name, ref.UID != "" && ref.UID != string(session.UID):
		return nil, apierrors.NewNotFound(callResource, name)
	case !call.Spec.Background:
		return nil, apierrors.NewConflict(callResource, name, errors.New("the call isn't a background call: its standard input is what its spec says"))
	case call.Spec.Stdin != "":
		return nil, apierrors.NewConflict(callResource, name, errors.New("the call has a standard input of its own, spec.stdin, which ends with that"))
	case call.Spec.File != nil:
		return nil, apierrors.NewConflict(callResource, name, errors.New("the call starts no process"))
	case call.Status.Phase.Terminal():
		return nil, apierrors.NewConflict(callResource, name, errors.New("the call has ended"))
	}
	return call, nil
}

// inputFailed is what a client is told whose input wasn't taken, or only a part of it.
func inputFailed(w http.ResponseWriter, err error) error {
	var failed *dispatch.TransferError
	switch {
	case errors.Is(err, errTooLong):
		return apierrors.NewRequestEntityTooLargeError("a request has at most 1048576 bytes of input: send the rest in another")
	case errors.Is(err, errBrokeOff):
		return badRequest("%s: ask with the offset that you think is right for how much was taken", err.Error())
	case !errors.As(err, &failed):
		return transferFailed(err, nil)
	}
	if failed.Reason == wire.InputNotFound {
		return unavailable("%s", failed.Message)
	}
	w.Header().Set(HeaderInputOffset, strconv.FormatInt(failed.Next, 10))
	switch failed.Reason {
	case wire.InputOffset:
		return statusError(http.StatusConflict, wire.InputOffset, nil, "%s: %d", failed.Message, failed.Next)
	case wire.InputClosed:
		return statusError(http.StatusConflict, wire.InputClosed, nil, "%s", failed.Message)
	case wire.InputFull:
		return tooMany("%s: go on at offset %d", failed.Message, failed.Next)
	default:
		return unavailable("%s", failed.Message)
	}
}
