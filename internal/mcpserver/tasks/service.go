package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/mcpserver/identity"
)

// Methods of the protocol.
const (
	methodCall   = "tools/call"
	methodGet    = "tasks/get"
	methodUpdate = "tasks/update"
	methodCancel = "tasks/cancel"
)

// After is how long a call may take before a client gets a task.
const After = 2 * time.Second

// nameHeader repeats the id of a task, for proxies.
const nameHeader = "Mcp-Name"

// Service hands out tasks and answers requests about them.
type Service struct {
	// After is how long a call may take before its client gets a task.
	After time.Duration
	// Enter finds out on whose behalf a request acts, and takes a place for it. The function gives the place back.
	Enter func(*mcp.RequestExtra) (*identity.Requester, func(), error)
	// Answer is what the request that created a finished call would have been answered with, had it the given _meta. An error is one of the
	// protocol. What it takes up is given back after the answer to the request that has extra.
	Answer func(ctx context.Context, extra *mcp.RequestExtra, asked mcp.Meta, who *identity.Requester, call *v1alpha1.ToolCall) (*mcp.CallToolResult, error)
	// Inputs are what calls wait for from clients.
	Inputs Inputs
}

// Inputs are questions of calls to clients.
type Inputs interface {
	// Pending returns the questions that the requester can answer, each under a key of its own.
	Pending(ctx context.Context, who *identity.Requester, call *v1alpha1.ToolCall) mcp.InputRequestMap
	// Take takes an answer to one of them. It ignores one to a question that the call doesn't have for the requester.
	Take(ctx context.Context, who *identity.Requester, call *v1alpha1.ToolCall, key string, answer json.RawMessage) error
}

// Register adds the methods to a server. It panics if the SDK has methods of these names.
func (s *Service) Register(server *mcp.Server) {
	server.AddReceivingMiddleware(s.receive)
	err := errors.Join(
		mcp.AddReceivingCustomMethod(server, methodGet, s.get),
		mcp.AddReceivingCustomMethod(server, methodUpdate, s.update),
		mcp.AddReceivingCustomMethod(server, methodCancel, s.cancel),
	)
	if err != nil {
		panic(err)
	}
}

// params are those of all methods.
type params struct {
	mcp.ParamsBase
	TaskID         string                     `json:"taskId"`
	InputResponses map[string]json.RawMessage `json:"inputResponses"`
}

// caller is who sent a request about a task.
type caller struct {
	*identity.Requester
	extra *mcp.RequestExtra
	// fills says that the client can show a form.
	fills bool
}

type callerKey struct{}

// receive rejects requests about tasks of clients that don't know them, and offers tasks to those that do.
func (s *Service) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		about, isTask := req.GetParams().(*params)
		if !isTask && method != methodCall {
			return next(ctx, method, req)
		}
		switch declared := declaredBy(req); {
		case isTask && !declared.tasks():
			return nil, missingCapability()
		case isTask:
			if err := checkName(req.GetExtra(), about); err != nil {
				return nil, err
			}
			who, leave, err := s.Enter(req.GetExtra())
			if err != nil {
				return nil, internalError(err)
			}
			defer leave()
			return next(context.WithValue(ctx, callerKey{}, &caller{who, req.GetExtra(), declared.forms()}), method, req)
		case declared.tasks():
			return s.offer(ctx, next, req)
		default:
			return next(ctx, method, req)
		}
	}
}

// capabilities are what a client declares with a request.
type capabilities struct {
	Extensions  map[string]any             `json:"extensions"`
	Elicitation map[string]json.RawMessage `json:"elicitation"`
}

// declaredBy reads the capabilities of one request. What was declared earlier doesn't count.
func declaredBy(req mcp.Request) *capabilities {
	c := &capabilities{}
	if p := req.GetParams(); p != nil && !reflect.ValueOf(p).IsNil() {
		raw, err := json.Marshal(p.GetMeta()[mcp.MetaKeyClientCapabilities])
		if err != nil || json.Unmarshal(raw, c) != nil {
			return &capabilities{}
		}
	}
	return c
}

func (c *capabilities) tasks() bool {
	_, ok := c.Extensions[Extension]
	return ok
}

// forms reports whether the client shows forms. One that declares nothing more about elicitation does.
func (c *capabilities) forms() bool {
	_, form := c.Elicitation["form"]
	_, url := c.Elicitation["url"]
	return c.Elicitation != nil && (form || !url)
}

// missingCapability is the error for a client that doesn't declare the extension, and needs it.
func missingCapability() error {
	data, _ := json.Marshal(map[string]any{"requiredCapabilities": map[string]any{"extensions": map[string]any{Extension: struct{}{}}}})
	return &jsonrpc.Error{
		Code: mcp.CodeMissingRequiredClientCapabilities, Data: data,
		Message: "missing required client capability: declare the extension " + Extension + " in _meta of the request",
	}
}

// checkName rejects a request whose header names another task. Without HTTP there is no header.
func checkName(extra *mcp.RequestExtra, p *params) error {
	if extra == nil || extra.Header == nil || p == nil {
		return nil
	}
	if name := strings.TrimSpace(extra.Header.Get(nameHeader)); name != p.TaskID {
		return &jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: "header mismatch: " + nameHeader + " must be the taskId of the request"}
	}
	return nil
}

var errNotFound = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no such task: its call may have been deleted"}

// internalError says why a request can't be answered now.
func internalError(err error) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: bounds.Text(err.Error(), maxMessage)}
}

// find returns the call of a task. To somebody who can't read it, it doesn't exist.
func find(ctx context.Context, p *params) (*caller, id, *v1alpha1.ToolCall, error) {
	by, _ := ctx.Value(callerKey{}).(*caller)
	if by == nil || p == nil {
		return nil, id{}, nil, errNotFound
	}
	i, ok := parseID(p.TaskID)
	if !ok || i.key.Namespace != by.Namespace {
		return nil, id{}, nil, errNotFound
	}
	call := &v1alpha1.ToolCall{}
	err := by.Objects.Get(ctx, i.key, call)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), err == nil && !i.isOf(call):
		return nil, id{}, nil, errNotFound
	case err != nil:
		return nil, id{}, nil, internalError(err)
	}
	return by, i, call, nil
}

// get returns the state of a task.
func (s *Service) get(ctx context.Context, _ *mcp.ServerSession, p *params) (*task, error) {
	by, i, call, err := find(ctx, p)
	if err != nil {
		return nil, err
	}
	t := describe(i, call)
	switch {
	case t.Status == completed:
		t.end(s.Answer(ctx, by.extra, p.GetMeta(), by.Requester, call))
	case t.Status == working && by.fills:
		if t.InputRequests = s.Inputs.Pending(ctx, by.Requester, call); len(t.InputRequests) > 0 {
			t.Status = inputRequired
		}
	}
	return t, nil
}

// update takes answers to questions.
func (s *Service) update(ctx context.Context, _ *mcp.ServerSession, p *params) (*acknowledgement, error) {
	by, _, call, err := find(ctx, p)
	if err != nil {
		return nil, err
	}
	for key, answer := range p.InputResponses {
		if call.Status.Phase.Terminal() {
			break
		}
		if err := s.Inputs.Take(ctx, by.Requester, call, key, answer); err != nil {
			return nil, err
		}
	}
	return &acknowledgement{ResultType: typeComplete}, nil
}

// cancel stops the call of a task. A call that has finished stays as it is.
func (s *Service) cancel(ctx context.Context, _ *mcp.ServerSession, p *params) (*acknowledgement, error) {
	by, i, call, err := find(ctx, p)
	if err != nil {
		return nil, err
	}
	if !call.Status.Phase.Terminal() {
		_, err = by.Calls.Cancel(ctx, i.key, i.uid)
	}
	if err != nil && client.IgnoreNotFound(err) != nil && !errors.Is(err, follow.ErrDeleted) {
		return nil, internalError(err)
	}
	return &acknowledgement{ResultType: typeComplete}, nil
}
