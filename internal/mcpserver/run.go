package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
)

const (
	// namePrefix and nameLength make the names of calls. The server names them itself: a name runs at most once,
	// so that a creation whose answer was lost can be tried again.
	namePrefix = "mcp-"
	nameLength = 12

	// maxTrace bounds what a client says of its trace, in bytes; the specification asks for as much.
	maxTrace = 512

	// createTimeout bounds one try to create a call, and createTries their number when the answer is lost.
	createTimeout = 20 * time.Second
	createTries   = 3
	createRetry   = 500 * time.Millisecond

	// cancelTimeout bounds the asking of a call to stop, endTimeout the wait for its end after that: its process
	// has 5 s to end by itself.
	cancelTimeout = 10 * time.Second
	cancelRetry   = 500 * time.Millisecond
	endTimeout    = 10 * time.Second
)

// specOf makes a call's spec of a tool's arguments.
type specOf func(raw []byte) (v1alpha1.ToolCallSpec, error)

func (s *Server) exec(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return s.answer(ctx, req, execSpec)
}

func (s *Server) runCode(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return s.answer(ctx, req, runCodeSpec)
}

// answer runs a call for a request. Whatever happens is a result; only a request without a caller is an error.
func (s *Server) answer(ctx context.Context, req *mcp.CallToolRequest, read specOf) (*mcp.CallToolResult, error) {
	who, err := s.callerOf(req)
	if err != nil {
		return nil, err
	}
	ctx, end := s.lifetime(ctx, req)
	defer end()
	begun := time.Now()
	spec, err := read(req.Params.Arguments)
	var result *Result
	if err == nil {
		result, err = s.admit(ctx, req, who, spec)
	}
	if err != nil {
		result = resultOfError(who, err)
	}
	s.options.Metrics.observe(req.Params.Name, result, time.Since(begun))
	s.options.Log.Info("tool call answered", "tool", req.Params.Name, "user", who.User, "namespace", who.Namespace,
		"call", result.Name, "reason", result.Reason)
	return result.encode()
}

// admit runs the call if the user doesn't have too many already.
func (s *Server) admit(ctx context.Context, req *mcp.CallToolRequest, who *Caller, spec v1alpha1.ToolCallSpec) (*Result, error) {
	giveBack, ok := s.quota.take(who.User)
	if !ok {
		return nil, &refusal{reason: reasonTooManyCalls, retrySafe: true, message: fmt.Sprintf(
			"this server runs at most %d calls at a time, and %d of one user: wait until others have ended",
			s.options.MaxCalls, s.options.MaxCallsPerUser)}
	}
	defer giveBack()
	call := &v1alpha1.ToolCall{Spec: spec}
	call.Namespace, call.Name = who.Namespace, namePrefix+utilrand.String(nameLength)
	call.Annotations = traceOf(req)
	if err := create(ctx, who.Calls, call); err != nil {
		return nil, err
	}
	live := startProgress(ctx, req)
	done, err := who.Calls.Wait(ctx, keyOf(call), follow.Watcher{Output: live.output()})
	live.end()
	if ctx.Err() != nil && err != nil {
		done, err = stop(ctx, who.Calls, keyOf(call))
	}
	if err != nil {
		return nil, &lost{call: keyOf(call), cause: err}
	}
	return resultOf(done), nil
}

// traceOf is the trace that the client's request belongs to, if it says so: the call becomes part of it.
func traceOf(req *mcp.CallToolRequest) map[string]string {
	annotations := map[string]string{}
	for key, annotation := range map[string]string{
		"traceparent": v1alpha1.AnnotationTraceParent, "tracestate": v1alpha1.AnnotationTraceState,
	} {
		if value, ok := req.Params.Meta[key].(string); ok && value != "" && len(value) <= maxTrace {
			annotations[annotation] = value
		}
	}
	return annotations
}

func keyOf(call *v1alpha1.ToolCall) types.NamespacedName {
	return types.NamespacedName{Namespace: call.Namespace, Name: call.Name}
}

// create creates the call, also if the request is cancelled meanwhile: it is known then whether there is one to
// cancel. When an answer is lost it asks again, and a call of that name is its own.
func create(ctx context.Context, to calls, call *v1alpha1.ToolCall) error {
	if err := ctx.Err(); err != nil {
		return &refusal{reason: v1alpha1.ReasonCancelRequested, message: "the request was cancelled before the call was created", retrySafe: true}
	}
	var err error
	for try := range createTries {
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTimeout)
		_, err = to.Create(attempt, call)
		cancel()
		if try > 0 && apierrors.IsAlreadyExists(err) {
			return nil
		}
		if !answerLost(err) {
			break
		}
		time.Sleep(createRetry)
	}
	switch {
	case err == nil:
		return nil
	case answerLost(err):
		return &lost{call: keyOf(call), cause: err}
	default:
		return &notCreated{cause: err}
	}
}

// answerLost says that a request may have been carried out all the same.
func answerLost(err error) bool {
	if err == nil {
		return false
	}
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err)
}

// stop asks the call to stop, and waits for its end. The request's own context is over by then.
func stop(ctx context.Context, at calls, key types.NamespacedName) (*v1alpha1.ToolCall, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout+endTimeout)
	defer cancel()
	asking, asked := context.WithTimeout(ctx, cancelTimeout)
	defer asked()
	for {
		err := at.Cancel(asking, key)
		if err == nil || apierrors.IsNotFound(err) {
			break
		}
		if asking.Err() != nil || !answerLost(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err) {
			return nil, fmt.Errorf("the call could not be cancelled and may still run: %w", err)
		}
		select {
		case <-asking.Done():
		case <-time.After(cancelRetry):
		}
	}
	done, err := at.Wait(ctx, key, follow.Watcher{})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, errors.New("the call was asked to stop, and had not ended yet")
	}
	return done, err
}
