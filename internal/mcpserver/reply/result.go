package reply

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// Reasons of results that no status of a call has. The others are those of calls and of the Kubernetes API (Forbidden,
// Invalid, ...).
const (
	ReasonTooManyCalls      = "TooManyCalls"
	ReasonRequestIDConflict = "RequestIDConflict"
	ReasonNotFinished       = "NotFinished"
	ReasonNotFound          = "NotFound"
	ReasonDeleted           = "Deleted"
	ReasonUnknown           = "Unknown"
)

// MaxMessage bounds the part of an error message that is passed on, in bytes.
const MaxMessage = 4 << 10

// Result is the outcome of a tool. Output is what the text of its answer has, the other fields are in _meta for programs; the last line of
// the text has those that a model needs.
type Result struct {
	Output    string `json:"-"`
	Reason    string `json:"reason"`
	RetrySafe *bool  `json:"retry_safe,omitempty"`
	ExitCode  *int32 `json:"exit_code,omitempty"`
	Call      string `json:"call,omitempty"`

	Phase       string   `json:"phase,omitempty"`
	Signal      string   `json:"signal,omitempty"`
	Truncated   bool     `json:"truncated,omitempty"`
	Refused     []string `json:"refused,omitempty"`
	Environment string   `json:"environment,omitempty"`
	Session     string   `json:"session,omitempty"`

	DeniedHosts []v1alpha1.DeniedHost `json:"denied_hosts,omitempty"`

	File      *File      `json:"file,omitempty"`
	Artifacts []Artifact `json:"artifacts,omitempty"`
	Stream    *Stream    `json:"stream,omitempty"`

	Environments []Environment `json:"environments,omitzero"`
	More         bool          `json:"more,omitempty"`

	// Succeeded is true unless the answer is an error.
	Succeeded bool `json:"-"`
	// KnowsSession says that the client named the session, so that the text doesn't.
	KnowsSession bool `json:"-"`
	// Image is what read_file and read_output show of an image; nil for everything else.
	Image *mcp.ImageContent `json:"-"`
	// call is what the output is of; nil for that of other tools.
	call *v1alpha1.ToolCall
}

// File is what a file tool did: the status of a call, with this server's names.
type File struct {
	Path       string `json:"path,omitempty"`
	Bytes      *int64 `json:"bytes,omitempty"`
	SHA256     string `json:"sha256,omitempty"`
	Lines      *int64 `json:"lines,omitempty"`
	Matches    *int64 `json:"matches,omitempty"`
	Truncated  bool   `json:"truncated,omitempty"`
	NextOffset *int64 `json:"next_offset,omitempty"`
	Changed    bool   `json:"changed,omitempty"`
	Created    bool   `json:"created,omitempty"`
	Replaced   *int64 `json:"replaced,omitempty"`
	Binary     bool   `json:"binary,omitempty"`

	Skipped *v1alpha1.SkippedFiles `json:"-"`
}

// Stream says which part of a stream read_output returned.
type Stream struct {
	Name       string `json:"name"`
	Offset     int64  `json:"offset"`
	NextOffset int64  `json:"next_offset"`
	Complete   bool   `json:"complete"`
	Missing    int64  `json:"missing,omitempty"`
}

// Of returns the result of a call, which has finished unless the result says otherwise.
func Of(call *v1alpha1.ToolCall) *Result {
	s := &call.Status
	r := &Result{
		Reason: s.Reason, RetrySafe: s.RetrySafe, ExitCode: s.ExitCode, Call: call.Name, Phase: string(s.Phase), Signal: s.Signal,
		File: fileOf(s.File), Succeeded: s.Phase == v1alpha1.PhaseSucceeded, call: call,
	}
	if !r.Succeeded {
		r.RetrySafe = ptr.To(ptr.Deref(s.RetrySafe, false) || changedNothing(call))
	}
	for _, program := range s.Refused {
		r.Refused = append(r.Refused, program.Path)
	}
	if s.Network != nil {
		r.DeniedHosts = s.Network.Denied
	}
	if s.Streams != nil {
		r.Truncated = s.Streams.Stdout.Truncated || s.Streams.Stderr.Truncated
	}
	if s.Environment != nil {
		r.Environment = s.Environment.Name
	}
	if call.Spec.SessionRef != nil {
		r.Session = call.Spec.SessionRef.Name
	}
	r.Output = outputOf(call)
	r.addArtifacts(call)
	return r
}

// refusals are the reasons of operations on files that were refused before they changed anything.
var refusals = []string{
	v1alpha1.ReasonFileNotFound, v1alpha1.ReasonFileExists, v1alpha1.ReasonIsDirectory, v1alpha1.ReasonNotDirectory, v1alpha1.ReasonPathNotAllowed,
	v1alpha1.ReasonPermissionDenied, v1alpha1.ReasonFileTooLarge, v1alpha1.ReasonEditNotFound, v1alpha1.ReasonEditAmbiguous, v1alpha1.ReasonFileChanged,
	v1alpha1.ReasonInvalidPattern,
}

// changedNothing reports whether a call that failed certainly changed nothing: it was denied, only reads, or was refused. Of any other the
// status says when it never started.
func changedNothing(call *v1alpha1.ToolCall) bool {
	if call.Status.Phase == v1alpha1.PhaseDenied {
		return true
	}
	file := call.Spec.File
	if file == nil {
		return false
	}
	// What can't be deleted in a directory says nothing of the rest.
	return !file.Operation.Writes() || !file.Recursive && slices.Contains(refusals, call.Status.Reason)
}

// outputOf is the text of a call, in the words of this server.
func outputOf(call *v1alpha1.ToolCall) string {
	s := &call.Status
	text := cmp.Or(s.Output, s.Message)
	switch shown := strings.TrimSuffix(s.Stdout, "\n"); {
	case call.Spec.File == nil && s.Streams != nil:
		return ownEnd(text, s.Network != nil && len(s.Network.Denied) > 0)
	case call.Spec.File == nil || s.File == nil || s.File.Binary || shown == "" || !strings.HasPrefix(text, shown):
		return OwnWords(text)
	default:
		return listing(call.Spec.File.Operation, shown) + OwnWords(text[len(shown):])
	}
}

func fileOf(f *v1alpha1.FileStatus) *File {
	if f == nil {
		return nil
	}
	return new(File(*f))
}

// Running is the result of a call that has not finished, which isn't a failure.
func Running(call *v1alpha1.ToolCall) *Result {
	r := Of(call)
	r.Reason, r.RetrySafe, r.Succeeded = ReasonNotFinished, nil, true
	if r.Phase == "" {
		r.Phase = string(v1alpha1.PhasePending)
	}
	r.Output = progressOf(call)
	return r
}

// progressOf says that a call runs, or what it waits for.
func progressOf(call *v1alpha1.ToolCall) string {
	switch s := &call.Status; {
	case s.Phase == v1alpha1.PhaseRunning:
		return fmt.Sprintf("call %s has not finished; read_output has what it wrote so far", call.Name)
	case s.Message == "":
		return fmt.Sprintf("call %s waits to be started", call.Name)
	case call.AwaitsApproval() && len(s.Approval.Approvers) > 0:
		return fmt.Sprintf("call %s waits: %s; ask %q", call.Name, OwnWords(s.Message), s.Approval.Approvers)
	default:
		return fmt.Sprintf("call %s waits: %s", call.Name, OwnWords(s.Message))
	}
}
