package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/mcpserver/reply"
)

// Extension is the name of the extension, in the capabilities of clients and servers.
const Extension = "io.modelcontextprotocol/tasks"

// States of a task.
const (
	working       = "working"
	inputRequired = "input_required"
	completed     = "completed"
	failed        = "failed"
	cancelled     = "cancelled"
)

// Types of results.
const (
	typeTask     = "task"
	typeComplete = "complete"
)

const (
	// pollInterval is how often a client should ask for the state of a call, approvalInterval while people decide about it.
	pollInterval     = 2 * time.Second
	approvalInterval = 5 * time.Second
	// maxMessage bounds a status message, in bytes.
	maxMessage = 4 << 10
)

// task is the state of a call, with the fields of the extension.
type task struct {
	mcp.ResultBase
	ResultType     string              `json:"resultType"`
	TaskID         string              `json:"taskId"`
	Status         string              `json:"status"`
	StatusMessage  string              `json:"statusMessage,omitempty"`
	CreatedAt      string              `json:"createdAt"`
	LastUpdatedAt  string              `json:"lastUpdatedAt"`
	TTLMs          *int64              `json:"ttlMs"` // null: the task is there as long as its call
	PollIntervalMs int64               `json:"pollIntervalMs,omitempty"`
	InputRequests  mcp.InputRequestMap `json:"inputRequests,omitempty"`
	Result         json.RawMessage     `json:"result,omitempty"`
	Error          *jsonrpc.Error      `json:"error,omitempty"`
}

// acknowledgement answers requests that return nothing.
type acknowledgement struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
}

// describe returns the state of a call, as far as the call says it.
func describe(i id, call *v1alpha1.ToolCall) *task {
	t := &task{
		ResultType: typeComplete, TaskID: i.String(), Status: working, StatusMessage: statusMessage(call),
		CreatedAt: stamp(call.CreationTimestamp.Time), LastUpdatedAt: stamp(lastChange(call)),
	}
	switch {
	case call.Status.Phase == v1alpha1.PhaseCancelled:
		t.Status = cancelled
	case call.Status.Phase.Terminal():
		t.Status = completed
	case call.AwaitsApproval():
		t.PollIntervalMs = approvalInterval.Milliseconds()
	default:
		t.PollIntervalMs = pollInterval.Milliseconds()
	}
	return t
}

// statusMessage says what a call waits for, or how it ended.
func statusMessage(call *v1alpha1.ToolCall) string {
	s := &call.Status
	message := reply.OwnWords(s.Message)
	if call.AwaitsApproval() {
		message = awaitedApproval(call) + ": " + message
	}
	if s.Reason != "" && message != "" {
		message = s.Reason + ": " + message
	}
	return bounds.Text(message, maxMessage)
}

// awaitedApproval says whose decision a call waits for.
func awaitedApproval(call *v1alpha1.ToolCall) string {
	a := call.Status.Approval
	text := fmt.Sprintf("%d of %d approvals, until %s", len(a.ApprovedBy), a.Needed, stamp(a.ExpiresAt.Time))
	if len(a.Approvers) > 0 {
		text += fmt.Sprintf("; ask %q", a.Approvers)
	}
	if askedFor(call) == "" {
		text += fmt.Sprintf("; the action is too long for a form: decide with kubectl toolcall approve %s, or in the console", call.Name)
	}
	return text
}

// lastChange is when a condition of the call changed last.
func lastChange(call *v1alpha1.ToolCall) time.Time {
	last := call.CreationTimestamp.Time
	for i := range call.Status.Conditions {
		if at := call.Status.Conditions[i].LastTransitionTime.Time; at.After(last) {
			last = at
		}
	}
	return last
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// end adds what the request that created the call would have been answered with. Its error is one of the protocol.
func (t *task) end(answer *mcp.CallToolResult, err error) {
	if err == nil {
		t.Result, err = encode(answer)
	}
	if err == nil {
		return
	}
	t.Status = failed
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		t.Error = wire
		return
	}
	t.Error = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: bounds.Text(err.Error(), maxMessage)}
}

// encode writes an answer as a result of its own, which says that it is complete.
func encode(answer *mcp.CallToolResult) (json.RawMessage, error) {
	raw, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	fields["resultType"] = json.RawMessage(`"` + typeComplete + `"`)
	return json.Marshal(fields)
}
