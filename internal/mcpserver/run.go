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
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/mcpserver/tasks"
	"toolcall.dev/operator/internal/mcpserver/tools"
)

const (
	// namePrefix and nameLength define the names of calls. The server generates the names, because a call with a given
	// name runs at most once: it can retry a create request whose response was lost.
	namePrefix = "mcp-"
	nameLength = 12

	// labelConversation has the id of the conversation that created a call or a session.
	labelConversation = "toolcall.dev/conversation"

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

// run creates the call, or finds the one that has its request_id, and waits for its end.
func (s *Server) run(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester, r *tools.CallRequest) (*reply.Result, error) {
	call := &v1alpha1.ToolCall{Spec: r.Spec}
	call.Annotations, call.Labels = traceOf(ctx), labelsOf(req)
	if err := setName(ctx, who, call, r.ID); err != nil {
		return nil, err
	}
	tasks.Prepare(ctx, call)
	created, earlier, err := s.findOrCreate(ctx, req, who, call, r.ID != "")
	if err != nil {
		return nil, err
	}
	done, err := await(ctx, req, who, created, r.ID != "")
	if errors.Is(err, tasks.ErrTask) {
		return reply.Running(created), nil
	}
	if err != nil {
		return nil, err
	}
	result := resultOf(done)
	result.KnowsSession = r.Spec.SessionRef != nil
	s.addImage(ctx, req.Extra, who, done, result, earlier)
	s.leaveConversation(req, done, result)
	if earlier && !result.Succeeded {
		result.Output += "\n\nThis is the result of an earlier request with this request_id. To run it again, use another request_id."
	}
	return result, nil
}

// answerOf is the answer to a request with the given _meta that created a call which has finished.
func (s *Server) answerOf(ctx context.Context, extra *mcp.RequestExtra, asked mcp.Meta, who *identity.Requester, call *v1alpha1.ToolCall) (*mcp.CallToolResult, error) {
	result := resultOf(call)
	s.addImage(ctx, extra, who, call, result, true)
	return result.Encode(asked, s.options.MaxAnswer)
}

var errCancelledBefore = &failure{reason: v1alpha1.ReasonCancelRequested, message: "the request was cancelled before the call was created"}

// findOrCreate creates the call, in the session of its conversation if it names none, or finds the one of an earlier request.
func (s *Server) findOrCreate(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester, call *v1alpha1.ToolCall, named bool) (created *v1alpha1.ToolCall, earlier bool, err error) {
	joins := s.joins(call)
	if joins && named {
		// The call of an earlier request needs no session.
		found, err := adopt(ctx, who, call, named)
		if !apierrors.IsNotFound(err) {
			return found, true, asOutcome(call, err)
		}
	}
	if joins {
		own, err := s.ownSession(ctx, req, who)
		if err != nil {
			return nil, false, err
		}
		call.Spec.SessionRef = own.DeepCopy()
	}
	if ctx.Err() != nil {
		return nil, false, errCancelledBefore
	}
	created, earlier, err = createOrAdopt(ctx, who, call, named)
	return created, earlier, asOutcome(call, err)
}

// asOutcome says that the outcome of a call is unknown, unless an error says itself what has failed.
func asOutcome(call *v1alpha1.ToolCall, err error) error {
	if err == nil || isFailure(err) {
		return err
	}
	return unknownOutcome(keyOf(call), err)
}

// await waits for the end of a call. If the request ends before, the call is cancelled, unless the client can ask for its result
// again by its request_id, or has a task: then the error is tasks.ErrTask. A call in the background is answered when it runs, and goes on.
// Another call of the same name is none of the requester's.
func await(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester, call *v1alpha1.ToolCall, named bool) (*v1alpha1.ToolCall, error) {
	done, err := awaitAnswer(ctx, req, who, call)
	if errors.Is(err, tasks.ErrTask) {
		return nil, err
	}
	if ctx.Err() != nil && err != nil {
		if named {
			return nil, stillRunning(call.Name)
		}
		if done, err = cancel(ctx, who.Calls, call); err != nil {
			return nil, unknownOutcome(keyOf(call), err)
		}
	}
	return done, asOutcome(call, err)
}

// awaitAnswer waits until a call has finished, is a task, or runs in the background.
func awaitAnswer(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester, call *v1alpha1.ToolCall) (*v1alpha1.ToolCall, error) {
	if call.Spec.Background {
		return waitFor(ctx, who, call, backgroundWait, func(c *v1alpha1.ToolCall) bool { return c.Status.Phase == v1alpha1.PhaseRunning })
	}
	live := startProgress(ctx, req)
	defer live.stop()
	return tasks.Await(ctx, who, call, func(ctx context.Context) (*v1alpha1.ToolCall, error) {
		return who.Calls.Wait(ctx, keyOf(call), follow.Watcher{UID: call.UID, Output: live.output(), NoRemainder: true})
	})
}

// labelsOf returns labels with which kubectl finds what a conversation did. Over standard input and output it has no id.
func labelsOf(req *mcp.CallToolRequest) map[string]string {
	id := req.Session.ID()
	if id == "" || len(validation.IsValidLabelValue(id)) > 0 {
		return nil
	}
	return map[string]string{labelConversation: id}
}

func keyOf(call *v1alpha1.ToolCall) types.NamespacedName {
	return types.NamespacedName{Namespace: call.Namespace, Name: call.Name}
}

// isBusy reports whether the API server didn't carry out a request, and may carry out the same one a moment later. Creates that count
// against one ResourceQuota conflict with each other.
func isBusy(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsConflict(err)
}

// isResponseLost reports whether the API server may have carried out a request that failed.
func isResponseLost(err error) bool {
	if err == nil {
		return false
	}
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err)
}

// untilAnswered sends a request until the API server has answered it, or the context ends.
func untilAnswered(ctx context.Context, send func() error) (err error) {
	_ = wait.PollUntilContextCancel(ctx, cancelRetry, true, func(context.Context) (bool, error) {
		err = send()
		return !isResponseLost(err) && !isBusy(err), nil
	})
	return err
}

// cancel cancels the call and waits until it has finished. The context of the request has ended by then.
func cancel(ctx context.Context, at identity.Calls, call *v1alpha1.ToolCall) (*v1alpha1.ToolCall, error) {
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout+finishTimeout)
	defer end()
	requesting, stop := context.WithTimeout(ctx, cancelTimeout)
	defer stop()
	err := untilAnswered(requesting, func() error {
		_, err := at.Cancel(requesting, keyOf(call), call.UID)
		if errors.Is(err, follow.ErrDeleted) {
			return nil
		}
		return client.IgnoreNotFound(err)
	})
	if err != nil {
		return nil, notChanged(call.Name, "", fmt.Errorf("cancel the call, which may still run: %w", err))
	}
	done, err := at.Wait(ctx, keyOf(call), follow.Watcher{UID: call.UID})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, errors.New("the call was cancelled, but has not finished yet")
	}
	return done, err
}
