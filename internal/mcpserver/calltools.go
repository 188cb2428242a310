package mcpserver

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/mcpserver/tools"
)

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
		waiting, cancel := context.WithTimeout(ctx, r.Wait)
		defer cancel()
		done, err := who.Calls.Wait(waiting, keyOf(call), follow.Watcher{
			UID: call.UID, Changed: func(seen *v1alpha1.ToolCall) { call = seen },
		})
		switch {
		case err == nil:
			call = done
		case !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
			return nil, unknownOutcome(keyOf(call), err)
		}
	}
	if !follow.Finished(call) {
		return reply.Running(call), nil
	}
	return reply.Of(call), nil
}

// cancelCall cancels a call and returns its result.
func cancelCall(ctx context.Context, _ *mcp.CallToolRequest, who *identity.Requester, name string) (*reply.Result, error) {
	call, err := findCall(ctx, who, name)
	if err != nil {
		return nil, err
	}
	if !follow.Finished(call) {
		key := keyOf(call)
		call, err = cancel(ctx, who.Calls, call)
		switch {
		case isFailure(err):
			return nil, err
		case err != nil:
			return nil, unknownOutcome(key, err)
		}
	}
	r := reply.Of(call)
	if call.Status.Phase == v1alpha1.PhaseCancelled {
		// That is what was wanted.
		r.Succeeded, r.RetrySafe = true, ptr.To(ptr.Deref(r.RetrySafe, false))
	}
	return r, nil
}
