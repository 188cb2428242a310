package mcpserver

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
)

// Reasons of results that no call stands behind, beside those of the Kubernetes API (Forbidden, Invalid, ...).
const (
	reasonInvalidArguments = "InvalidArguments"
	reasonTooManyCalls     = "TooManyCalls"
	reasonDeleted          = "Deleted"
	reasonUnknown          = "Unknown"
)

// maxMessage bounds what is repeated of an error, in bytes.
const maxMessage = 4 << 10

// Result is the structured part of an answer: what came of a call, under the names of the ToolCall's status.
type Result struct {
	Name      string `json:"name,omitempty" jsonschema:"name of the ToolCall object; absent when none was created"`
	Namespace string `json:"namespace" jsonschema:"namespace of the call"`
	Phase     string `json:"phase,omitempty" jsonschema:"Succeeded, Failed, Denied or Cancelled; absent when the end isn't known or no call was created"`
	Reason    string `json:"reason" jsonschema:"why, in one word, such as Completed, NonZeroExit, TimedOut, AgentNotAllowed, InvalidArguments or Forbidden"`
	Message   string `json:"message" jsonschema:"why, in a sentence, and what would be accepted"`

	ExitCode *int32                  `json:"exitCode,omitempty" jsonschema:"exit code of the process; -1 when a signal or the time limit ended it; absent when nothing ran or nobody knows"`
	Signal   string                  `json:"signal,omitempty" jsonschema:"signal that ended the process, such as SIGKILL"`
	Stdout   string                  `json:"stdout" jsonschema:"standard output, shortened when streams.stdout.truncated is true"`
	Stderr   string                  `json:"stderr" jsonschema:"standard error, shortened when streams.stderr.truncated is true"`
	Streams  *v1alpha1.StreamsStatus `json:"streams,omitempty" jsonschema:"what the process really wrote"`

	DurationMilliseconds *int64 `json:"durationMilliseconds,omitempty" jsonschema:"how long the process ran"`
	RetrySafe            *bool  `json:"retrySafe,omitempty" jsonschema:"true when it is certain that nothing ran, so that the call can be made again"`
	Environment          string `json:"environment,omitempty" jsonschema:"name of the environment that the call ran in"`
	WorkingDir           string `json:"workingDir,omitempty" jsonschema:"directory that the process started in"`

	// output is the text for the model; the message when there is none.
	output string
}

// resultOf tells of a call that ended.
func resultOf(call *v1alpha1.ToolCall) *Result {
	s := &call.Status
	r := &Result{
		Name: call.Name, Namespace: call.Namespace, Phase: string(s.Phase), Reason: s.Reason, Message: s.Message,
		ExitCode: s.ExitCode, Signal: s.Signal, Stdout: s.Stdout, Stderr: s.Stderr, Streams: s.Streams,
		DurationMilliseconds: s.DurationMilliseconds, RetrySafe: s.RetrySafe, output: s.Output,
	}
	if s.Environment != nil {
		r.Environment, r.WorkingDir = s.Environment.Name, s.Environment.WorkingDir
	}
	return r
}

// encode makes the answer. Only a call that succeeded is none that a model has to react to.
func (r *Result) encode() (*mcp.CallToolResult, error) {
	structured, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the result of call %s: %w", r.Name, err)
	}
	text := r.output
	if text == "" {
		text = r.Message
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: text}},
		StructuredContent: json.RawMessage(structured),
		IsError:           r.Phase != string(v1alpha1.PhaseSucceeded),
	}, nil
}

// refusal is an answer without a call: what was wrong and what would be right.
type refusal struct {
	reason, message string
	retrySafe       bool
}

func (r *refusal) Error() string { return r.message }

// notCreated is a call that certainly wasn't created.
type notCreated struct{ cause error }

func (n *notCreated) Error() string { return n.cause.Error() }
func (n *notCreated) Unwrap() error { return n.cause }

// lost is a call that was, or may have been, created, and whose end isn't known.
type lost struct {
	call  types.NamespacedName
	cause error
}

func (l *lost) Error() string { return l.cause.Error() }
func (l *lost) Unwrap() error { return l.cause }

// resultOfError tells a model what an error means for its call.
func resultOfError(who *Caller, err error) *Result {
	r := &Result{Namespace: who.Namespace}
	var refused *refusal
	var gone *lost
	var never *notCreated
	switch {
	case errors.As(err, &refused):
		r.Reason, r.Message, r.RetrySafe = refused.reason, refused.message, &refused.retrySafe
	case errors.As(err, &gone):
		r.Name, r.Reason, r.RetrySafe = gone.call.Name, reasonUnknown, ptr.To(false)
		if errors.Is(err, follow.ErrDeleted) || apierrors.IsNotFound(err) {
			r.Reason = reasonDeleted
		}
		r.Message = fmt.Sprintf("what came of call %s in namespace %s isn't known, and it may have run: %s", gone.call.Name, gone.call.Namespace, shorten(gone.cause.Error(), maxMessage))
	case errors.As(err, &never):
		r.Reason, r.RetrySafe = apiReason(err), ptr.To(true)
		r.Message = explain(who, err)
	default:
		r.Reason, r.RetrySafe, r.Message = reasonUnknown, ptr.To(false), shorten(err.Error(), maxMessage)
	}
	return r
}

// apiReason is the API server's reason for an error.
func apiReason(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	return reasonUnknown
}

// explain adds to an error of the API server what would help.
func explain(who *Caller, err error) string {
	text := shorten(err.Error(), maxMessage)
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%s may not do this in namespace %s. An administrator can bind the ClusterRole toolcall-user there, "+
			"and a Role with the verb use on the tools that may run. The API server says: %s", who.User, who.Namespace, text)
	case apierrors.IsUnauthorized(err):
		return "the cluster doesn't accept the credentials (any more): sign in again, or send a new token. The API server says: " + text
	default:
		return text
	}
}
