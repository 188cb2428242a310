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
	// namePrefix and nameLength define the names of calls. The server generates the names, because a call with a given
	// name runs at most once: it can retry a create request whose response was lost.
	namePrefix = "mcp-"
	nameLength = 12

	// maxTrace bounds a client's trace context in bytes. The specification requires as much.
	maxTrace = 512

	// createTimeout bounds one create request, createTries how often it is sent when responses are lost.
	createTimeout = 20 * time.Second
	createTries   = 3
	createRetry   = 500 * time.Millisecond

	// cancelTimeout bounds the cancellation request, finishTimeout the time until the call has finished after that: its
	// process gets 5 s to exit.
	cancelTimeout = 10 * time.Second
	cancelRetry   = 500 * time.Millisecond
	finishTimeout = 10 * time.Second
)

// specOf builds the spec of a call from the arguments of a tool.
type specOf func(raw []byte) (v1alpha1.ToolCallSpec, error)

func (s *Server) exec(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return s.answer(ctx, req, execSpec)
}

func (s *Server) runCode(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return s.answer(ctx, req, runCodeSpec)
}

// answer runs a call for a request. Every outcome is a result; only a request without a requester is an error.
func (s *Server) answer(ctx context.Context, req *mcp.CallToolRequest, read specOf) (*mcp.CallToolResult, error) {
	who, err := s.requesterOf(req)
	if err != nil {
		return nil, err
	}
	ctx, end := s.callContext(ctx, req)
	defer end()
	started := time.Now()
	spec, err := read(req.Params.Arguments)
	var result *Result
	if err == nil {
		result, err = s.run(ctx, req, who, spec)
	}
	if err != nil {
		result = resultOfError(who, err)
	}
	s.options.Metrics.observe(req.Params.Name, result, time.Since(started))
	s.options.Log.Info("answered a tool call", "tool", req.Params.Name, "user", who.User, "namespace", who.Namespace,
		"call", result.Name, "reason", result.Reason)
	return result.encode()
}

// run runs the call, unless too many calls run already.
func (s *Server) run(ctx context.Context, req *mcp.CallToolRequest, who *Requester, spec v1alpha1.ToolCallSpec) (*Result, error) {
	place, ok := s.calls.reserve(who.principal(), 1)
	if !ok {
		return nil, &invalidRequest{reason: reasonTooManyCalls, message: fmt.Sprintf(
			"too many calls are running (limits: %d in total, %d for one tenant, %d for one user): wait until others have finished",
			s.calls.total, s.calls.perTenant, s.calls.perUser)}
	}
	defer place.release()
	call := &v1alpha1.ToolCall{Spec: spec}
	call.Namespace, call.Name = who.Namespace, namePrefix+utilrand.String(nameLength)
	call.Annotations = traceOf(req)
	if err := create(ctx, who.Calls, call); err != nil {
		return nil, err
	}
	live := startProgress(ctx, req)
	done, err := who.Calls.Wait(ctx, keyOf(call), follow.Watcher{Output: live.output(), NoRemainder: true})
	live.stop()
	if ctx.Err() != nil && err != nil {
		done, err = cancel(ctx, who.Calls, keyOf(call))
	}
	if err != nil {
		return nil, &unknownOutcome{call: keyOf(call), cause: err}
	}
	return resultOf(done), nil
}

// traceOf returns the trace context of the request as annotations: the call becomes part of the client's trace.
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

// create creates the call. It doesn't stop when the request is cancelled meanwhile, so that the call can be cancelled.
// If a response is lost, it retries: a call that exists under the generated name then is its own.
func create(ctx context.Context, to calls, call *v1alpha1.ToolCall) error {
	if err := ctx.Err(); err != nil {
		return &invalidRequest{reason: v1alpha1.ReasonCancelRequested, message: "the request was cancelled before the call was created"}
	}
	var err error
	for try := range createTries {
		attempt, end := context.WithTimeout(context.WithoutCancel(ctx), createTimeout)
		_, err = to.Create(attempt, call)
		end()
		if try > 0 && apierrors.IsAlreadyExists(err) {
			return nil
		}
		if !isResponseLost(err) {
			break
		}
		time.Sleep(createRetry)
	}
	switch {
	case err == nil:
		return nil
	case isResponseLost(err):
		return &unknownOutcome{call: keyOf(call), cause: err}
	default:
		return &notCreated{cause: err}
	}
}

// isResponseLost reports whether the API server may have carried out a request that failed.
func isResponseLost(err error) bool {
	if err == nil {
		return false
	}
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err)
}

// cancel cancels the call and waits until it has finished. The context of the request has ended by then.
func cancel(ctx context.Context, at calls, key types.NamespacedName) (*v1alpha1.ToolCall, error) {
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout+finishTimeout)
	defer end()
	requesting, stop := context.WithTimeout(ctx, cancelTimeout)
	defer stop()
	for {
		err := at.Cancel(requesting, key)
		if err == nil || apierrors.IsNotFound(err) {
			break
		}
		if requesting.Err() != nil || !isResponseLost(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err) {
			return nil, fmt.Errorf("cancel the call, which may still run: %w", err)
		}
		select {
		case <-requesting.Done():
		case <-time.After(cancelRetry):
		}
	}
	done, err := at.Wait(ctx, key, follow.Watcher{})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, errors.New("the call was cancelled, but has not finished yet")
	}
	return done, err
}
