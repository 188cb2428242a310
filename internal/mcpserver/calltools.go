package mcpserver

import (
	"context"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/mcpserver/tools"
)

// backgroundWait is how long a call in the background may take to start until it is answered.
const backgroundWait = 10 * time.Second

// findCall reads a call.
func findCall(ctx context.Context, who *identity.Requester, name string) (*v1alpha1.ToolCall, error) {
	call := &v1alpha1.ToolCall{}
	if err := who.Objects.Get(ctx, types.NamespacedName{Namespace: who.Namespace, Name: name}, call); err != nil {
		return nil, notThere(err, "call", name)
	}
	return call, nil
}

// getCall returns the result of a call.
func getCall(ctx context.Context, _ *mcp.CallToolRequest, who *identity.Requester, r tools.WaitRequest) (*reply.Result, error) {
	call, err := findCall(ctx, who, r.Name)
	if err != nil {
		return nil, err
	}
	if !follow.Finished(call) && r.Wait > 0 {
		call, err = waitFor(ctx, who, call, r.Wait, follow.Finished)
	}
	if err != nil {
		return nil, err
	}
	return resultOf(call), nil
}

// resultOf returns the result of a call, or that it hasn't finished.
func resultOf(call *v1alpha1.ToolCall) *reply.Result {
	if !follow.Finished(call) {
		return reply.Running(call)
	}
	return reply.Of(call)
}

// waitFor waits until a call is as wanted, or has finished, but not longer than the limit, and returns its last state.
func waitFor(ctx context.Context, who *identity.Requester, call *v1alpha1.ToolCall, limit time.Duration, wanted func(*v1alpha1.ToolCall) bool) (*v1alpha1.ToolCall, error) {
	waiting, stop := context.WithTimeout(ctx, limit)
	defer stop()
	seen := call
	done, err := who.Calls.Wait(waiting, keyOf(call), follow.Watcher{
		UID: call.UID, Until: wanted, Changed: func(changed *v1alpha1.ToolCall) { seen = changed },
	})
	switch {
	case err == nil:
		return done, nil
	case waiting.Err() != nil && ctx.Err() == nil:
		return seen, nil
	default:
		return nil, unknownOutcome(keyOf(call), err)
	}
}

// cancelCall cancels a call and returns its result.
func cancelCall(ctx context.Context, _ *mcp.CallToolRequest, who *identity.Requester, name string) (*reply.Result, error) {
	call, err := findCall(ctx, who, name)
	if err != nil {
		return nil, err
	}
	if !follow.Finished(call) {
		done, err := cancel(ctx, who.Calls, call)
		if err != nil {
			return nil, asOutcome(call, err)
		}
		call = done
	}
	r := reply.Of(call)
	if call.Status.Phase == v1alpha1.PhaseCancelled {
		// That is what was wanted.
		r.Succeeded, r.RetrySafe = true, ptr.To(ptr.Deref(r.RetrySafe, false))
	}
	return r, nil
}
