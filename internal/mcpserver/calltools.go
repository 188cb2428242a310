package mcpserver

import (
	"context"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/mcpserver/identity"
)

var getCallTool = tool{
	name: "get_call", title: "Get a call", output: callOutput(), hints: readOnly(),
	description: func(*facts) string {
		return "Returns the result of a call, or that it has not finished. With timeout_seconds it waits so long for the result. Finished calls " +
			"are kept for a limited time."
	},
}

var cancelCallTool = tool{
	name: "cancel_call", title: "Cancel a call", output: callOutput(), hints: changes(true, true),
	description: func(*facts) string {
		return "Stops a call: its processes are ended, and what it wrote is kept. Returns its result. A call that has finished stays as it is."
	},
}

// readCallName reads the name of the call that a tool is about.
func readCallName(a *arguments) string {
	name := a.objectName("call", "name of the call, from an earlier result", "a call", "the results of other tools have it")
	return a.requireAlone("call", name, "the name of a call")
}

// findCall reads a call.
func findCall(ctx context.Context, who *identity.Requester, name string) (*v1alpha1.ToolCall, error) {
	call := &v1alpha1.ToolCall{}
	if err := who.Objects.Get(ctx, types.NamespacedName{Namespace: who.Namespace, Name: name}, call); err != nil {
		return nil, notThere(err, "call", name)
	}
	return call, nil
}

// waitRequest names what to wait for, and how long.
type waitRequest struct {
	name string
	wait time.Duration
}

func getCallSpec(a *arguments) waitRequest {
	return waitRequest{name: readCallName(a), wait: a.wait(0)}
}

// getCall returns the result of a call.
func getCall(ctx context.Context, _ *mcp.CallToolRequest, who *identity.Requester, r waitRequest) (*Result, error) {
	call, err := findCall(ctx, who, r.name)
	if err != nil {
		return nil, err
	}
	if !follow.Finished(call) && r.wait > 0 {
		waiting, cancel := context.WithTimeout(ctx, r.wait)
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
		return runningResult(call), nil
	}
	return resultOf(call), nil
}

// cancelCall cancels a call and returns its result.
func cancelCall(ctx context.Context, _ *mcp.CallToolRequest, who *identity.Requester, name string) (*Result, error) {
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
	r := resultOf(call)
	if call.Status.Phase == v1alpha1.PhaseCancelled {
		// That is what was wanted.
		r.succeeded, r.RetrySafe = true, ptr.To(ptr.Deref(r.RetrySafe, false))
	}
	return r, nil
}
