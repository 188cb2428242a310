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

// Reasons of results without a finished call. The others are those of the Kubernetes API (Forbidden, Invalid, ...).
const (
	reasonInvalidArguments = "InvalidArguments"
	reasonTooManyCalls     = "TooManyCalls"
	reasonDeleted          = "Deleted"
	reasonUnknown          = "Unknown"
)

// maxMessage bounds the part of an error message that is passed on, in bytes.
const maxMessage = 4 << 10

// Result is the structured part of an answer. Its fields have the names of the fields in the status of a ToolCall.
type Result struct {
	Name      string `json:"name,omitempty" jsonschema:"name of the ToolCall object; absent if none was created"`
	Namespace string `json:"namespace" jsonschema:"namespace of the call"`
	Phase     string `json:"phase,omitempty" jsonschema:"Succeeded, Failed, Denied or Cancelled; absent if the outcome is unknown or no call was created"`
	Reason    string `json:"reason" jsonschema:"reason in one word, such as Completed, NonZeroExit, TimedOut, AgentNotAllowed, InvalidArguments or Forbidden"`
	Message   string `json:"message" jsonschema:"reason in a sentence, and what is allowed"`

	ExitCode *int32                  `json:"exitCode,omitempty" jsonschema:"exit code of the process; -1 if a signal or the time limit ended it; absent if nothing ran or the exit code is unknown"`
	Signal   string                  `json:"signal,omitempty" jsonschema:"signal that ended the process, such as SIGKILL"`
	Stdout   string                  `json:"stdout" jsonschema:"standard output, truncated if streams.stdout.truncated is true"`
	Stderr   string                  `json:"stderr" jsonschema:"standard error, truncated if streams.stderr.truncated is true"`
	Streams  *v1alpha1.StreamsStatus `json:"streams,omitempty" jsonschema:"size and checksum of what the process wrote"`

	Refused []v1alpha1.RefusedProgram `json:"refused,omitempty" jsonschema:"programs that the command tried to start and that its policy doesn't let start"`

	DurationMilliseconds *int64 `json:"durationMilliseconds,omitempty" jsonschema:"how long the process ran"`
	RetrySafe            *bool  `json:"retrySafe,omitempty" jsonschema:"true if certainly nothing ran, so that repeating the call is safe"`
	Environment          string `json:"environment,omitempty" jsonschema:"name of the environment that the call ran in"`
	WorkingDir           string `json:"workingDir,omitempty" jsonschema:"directory that the process started in"`

	// output is the text for the model. If it is empty, the message is.
	output string
}

// resultOf returns the result of a finished call.
func resultOf(call *v1alpha1.ToolCall) *Result {
	s := &call.Status
	r := &Result{
		Name: call.Name, Namespace: call.Namespace, Phase: string(s.Phase), Reason: s.Reason, Message: s.Message,
		ExitCode: s.ExitCode, Signal: s.Signal, Stdout: s.Stdout, Stderr: s.Stderr, Streams: s.Streams,
		DurationMilliseconds: s.DurationMilliseconds, RetrySafe: s.RetrySafe, Refused: s.Refused, output: s.Output,
	}
	if s.Environment != nil {
		r.Environment, r.WorkingDir = s.Environment.Name, s.Environment.WorkingDir
	}
	return r
}

// encode encodes the answer. Every outcome but success sets isError, so that the model reacts to it.
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

// invalidRequest is a request for which the server created no call. The message says what to correct.
type invalidRequest struct{ reason, message string }

func (r *invalidRequest) Error() string { return r.message }

// notCreated means that the call certainly was not created.
type notCreated struct{ cause error }

func (n *notCreated) Error() string { return n.cause.Error() }
func (n *notCreated) Unwrap() error { return n.cause }

// unknownOutcome means that the call was created, or may have been, and that its outcome is unknown.
type unknownOutcome struct {
	call  types.NamespacedName
	cause error
}

func (u *unknownOutcome) Error() string { return u.cause.Error() }
func (u *unknownOutcome) Unwrap() error { return u.cause }

// resultOfError returns the result of a call that failed with an error.
func resultOfError(who *Requester, err error) *Result {
	r := &Result{Namespace: who.Namespace}
	var invalid *invalidRequest
	var unknown *unknownOutcome
	var never *notCreated
	switch {
	case errors.As(err, &invalid):
		r.Reason, r.Message, r.RetrySafe = invalid.reason, invalid.message, ptr.To(true)
	case errors.As(err, &unknown):
		r.Name, r.Reason, r.RetrySafe = unknown.call.Name, reasonUnknown, ptr.To(false)
		if errors.Is(err, follow.ErrDeleted) || apierrors.IsNotFound(err) {
			r.Reason = reasonDeleted
		}
		r.Message = fmt.Sprintf("the outcome of call %s in namespace %s is unknown, and its command may have run: %s", unknown.call.Name, unknown.call.Namespace, truncate(unknown.cause.Error(), maxMessage))
	case errors.As(err, &never):
		r.Reason, r.RetrySafe = apiReason(err), ptr.To(true)
		r.Message = explain(who, err)
	default:
		r.Reason, r.RetrySafe, r.Message = reasonUnknown, ptr.To(false), truncate(err.Error(), maxMessage)
	}
	return r
}

// apiReason returns the API server's reason for an error.
func apiReason(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	return reasonUnknown
}

// explain adds how to correct an error of the API server.
func explain(who *Requester, err error) string {
	text := truncate(err.Error(), maxMessage)
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%s has no permission to do this in namespace %s. An administrator can bind the ClusterRole toolcall-user there, "+
			"and a Role with the verb use on the tools that are needed. Error of the API server: %s", who.User, who.Namespace, text)
	case apierrors.IsUnauthorized(err):
		return "the cluster doesn't accept the credentials any more: sign in again, or send a new token. Error of the API server: " + text
	default:
		return text
	}
}
