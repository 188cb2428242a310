package mcpserver

import (
	"context"
	"errors"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/mcpserver/identity"
)

func getCallTool(*facts) *mcp.Tool {
	return &mcp.Tool{
		Name: "get_call", Title: "Get a call",
		Description: "Returns the result of a call, or that it has not finished. With timeout_seconds it waits so long for the result. Finished calls " +
			"are kept for a limited time.",
		InputSchema: input(map[string]*jsonschema.Schema{
			"call": text("name of the call, from an earlier result"), "timeout_seconds": waitInput(0),
		}, "call"),
		OutputSchema: callOutput(), Annotations: readOnly(),
	}
}

func cancelCallTool(*facts) *mcp.Tool {
	return &mcp.Tool{
		Name: "cancel_call", Title: "Cancel a call",
		Description: "Stops a call: its processes are ended, and what it wrote is kept. Returns its result. A call that has finished stays as it is.",
		InputSchema: input(map[string]*jsonschema.Schema{"call": text("name of the call, from an earlier result")}, "call"),

		OutputSchema: callOutput(), Annotations: changes(true, true),
	}
}

// findCall reads the call that the argument call names.
func findCall(ctx context.Context, who *identity.Requester, a *arguments) (*v1alpha1.ToolCall, error) {
	name := a.objectName("call", "a call", "the results of other tools have it")
	if len(a.errors) == 0 && name == "" {
		a.fail("call", "is required: the name of a call")
	}
	if err := a.err(); err != nil {
		return nil, err
	}
	call := &v1alpha1.ToolCall{}
	if err := who.Objects.Get(ctx, types.NamespacedName{Namespace: who.Namespace, Name: name}, call); err != nil {
		return nil, notThere(err, "call", name)
	}
	return call, nil
}

// getCall returns the result of a call.
func getCall(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester) (*Result, error) {
	a := parse(req.Params.Arguments, "call", "timeout_seconds")
	limit := a.wait(0)
	call, err := findCall(ctx, who, a)
	if err != nil {
		return nil, err
	}
	if !follow.Finished(call) && limit > 0 {
		waiting, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		done, err := who.Calls.Wait(waiting, keyOf(call), follow.Watcher{
			UID: call.UID, Changed: func(seen *v1alpha1.ToolCall) { call = seen },
		})
		switch {
		case err == nil:
			call = done
		case !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
			return nil, &unknownOutcome{call: keyOf(call), cause: err}
		}
	}
	if !follow.Finished(call) {
		return runningResult(call), nil
	}
	return resultOf(call), nil
}

// cancelCall cancels a call and returns its result.
func cancelCall(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester) (*Result, error) {
	call, err := findCall(ctx, who, parse(req.Params.Arguments, "call"))
	if err != nil {
		return nil, err
	}
	if !follow.Finished(call) {
		key := keyOf(call)
		call, err = cancel(ctx, who.Calls, call)
		var unchanged *notChanged
		switch {
		case errors.As(err, &unchanged):
			return nil, err
		case err != nil:
			return nil, &unknownOutcome{call: key, cause: err}
		}
	}
	r := resultOf(call)
	if call.Status.Phase == v1alpha1.PhaseCancelled {
		// That is what was wanted.
		r.succeeded, r.RetrySafe = true, ptr.To(ptr.Deref(r.RetrySafe, false))
	}
	return r, nil
}
