package mcpserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// Reasons of results that no status of a call has. The others are those of calls and of the Kubernetes API (Forbidden,
// Invalid, ...).
const (
	reasonTooManyCalls      = "TooManyCalls"
	reasonRequestIDConflict = "RequestIDConflict"
	reasonNotFinished       = "NotFinished"
	reasonNotFound          = "NotFound"
	reasonDeleted           = "Deleted"
	reasonUnknown           = "Unknown"
)

// maxMessage bounds the part of an error message that is passed on, in bytes.
const maxMessage = 4 << 10

// Result is the outcome of a tool, and the structured part of its answer. Clients show a model either the text of an answer
// or its structured part, so each of them holds everything.
type Result struct {
	Output    string `json:"output" jsonschema:"what the command wrote or the file has; for a failure also what went wrong and what is allowed"`
	Reason    string `json:"reason" jsonschema:"outcome in one word: Completed, NonZeroExit, TimedOut, AgentNotAllowed, InvalidArguments, Forbidden, ..."`
	RetrySafe *bool  `json:"retry_safe,omitempty" jsonschema:"in every failure: true if certainly nothing ran, so that repeating it repeats nothing"`
	ExitCode  *int32 `json:"exit_code,omitempty" jsonschema:"of a process that ended by itself; absent otherwise"`
	Call      string `json:"call,omitempty" jsonschema:"name of the call, for get_call, cancel_call and read_output"`

	Phase       string   `json:"phase,omitempty" jsonschema:"Pending, Running, Succeeded, Failed, Denied or Cancelled"`
	Signal      string   `json:"signal,omitempty" jsonschema:"signal that ended the process, such as SIGKILL"`
	Truncated   bool     `json:"truncated,omitempty" jsonschema:"true if output leaves out something: read_output has it"`
	Refused     []string `json:"refused,omitempty" jsonschema:"programs that the command tried to start and that the policy doesn't let start"`
	Environment string   `json:"environment,omitempty" jsonschema:"environment that it ran in"`
	Session     string   `json:"session,omitempty" jsonschema:"session that it ran in"`

	DeniedHosts []v1alpha1.DeniedHost `json:"denied_hosts,omitempty" jsonschema:"hosts that the command looked up, or tried to connect to at a port, and that it may not reach, and how often; the first 20"`

	File   *FileResult   `json:"file,omitempty" jsonschema:"what was done with the file"`
	Stream *StreamResult `json:"stream,omitempty" jsonschema:"which part of the stream this is"`

	Environments []environment `json:"environments,omitzero" jsonschema:"the environments, sorted by name"`
	More         bool          `json:"more,omitempty" jsonschema:"true if there are more environments than listed"`

	// succeeded is true unless the answer is an error.
	succeeded bool
	// image is what read_file shows of an image; nil for everything else.
	image *mcp.ImageContent
}

// FileResult is what a file tool did, with the meaning of the fields of the same name in the status of a call.
type FileResult struct {
	Path       string `json:"path,omitempty" jsonschema:"absolute path that was reached"`
	Bytes      *int64 `json:"bytes,omitempty"`
	SHA256     string `json:"sha256,omitempty" jsonschema:"of the whole file, for if_sha256"`
	Lines      *int64 `json:"lines,omitempty"`
	Matches    *int64 `json:"matches,omitempty"`
	Truncated  bool   `json:"truncated,omitempty" jsonschema:"true if there is more"`
	NextOffset *int64 `json:"next_offset,omitempty" jsonschema:"offset to read on from"`
	Changed    bool   `json:"changed,omitempty" jsonschema:"true if the file was written to while it was read"`
	Created    bool   `json:"created,omitempty"`
	Replaced   *int64 `json:"replaced,omitempty" jsonschema:"how often the text was replaced"`
	Binary     bool   `json:"binary,omitempty" jsonschema:"true if the file isn't text: output says what it is, and an image follows it"`
}

// StreamResult says which part of a stream read_output returned.
type StreamResult struct {
	Name       string `json:"name" jsonschema:"stdout or stderr"`
	Offset     int64  `json:"offset" jsonschema:"of the first byte"`
	NextOffset int64  `json:"next_offset" jsonschema:"offset to read on from"`
	Complete   bool   `json:"complete" jsonschema:"true if the stream ends here"`
	Missing    int64  `json:"missing,omitempty" jsonschema:"bytes of this part that were not kept"`
}

// resultOf returns the result of a call, which has finished unless the result says otherwise.
func resultOf(call *v1alpha1.ToolCall) *Result {
	s := &call.Status
	r := &Result{
		Output: cmp.Or(s.Output, s.Message), Reason: s.Reason, RetrySafe: s.RetrySafe, ExitCode: s.ExitCode, Call: call.Name, Phase: string(s.Phase),
		Signal: s.Signal, File: fileResultOf(s.File), succeeded: s.Phase == v1alpha1.PhaseSucceeded,
	}
	if !r.succeeded && r.RetrySafe == nil {
		// A denied call never ran. Of any other the status says when that is certain.
		r.RetrySafe = ptr.To(s.Phase == v1alpha1.PhaseDenied)
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
	return r
}

func fileResultOf(f *v1alpha1.FileStatus) *FileResult {
	if f == nil {
		return nil
	}
	return &FileResult{
		Path: f.Path, Bytes: f.Bytes, SHA256: f.SHA256, Lines: f.Lines, Matches: f.Matches, Truncated: f.Truncated,
		NextOffset: f.NextOffset, Changed: f.Changed, Created: f.Created, Replaced: f.Replaced, Binary: f.Binary,
	}
}

// runningResult is the result of a call that has not finished, which isn't a failure.
func runningResult(call *v1alpha1.ToolCall) *Result {
	r := resultOf(call)
	r.Reason, r.RetrySafe, r.succeeded = reasonNotFinished, nil, true
	if r.Phase == "" {
		r.Phase = string(v1alpha1.PhasePending)
	}
	r.Output = fmt.Sprintf("call %s has not finished; read_output has what it wrote so far", call.Name)
	return r
}

// encode encodes the answer. Every outcome but success sets isError, so that the model reacts to it.
func (r *Result) encode() (*mcp.CallToolResult, error) {
	structured, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the result of call %s: %w", r.Call, err)
	}
	content := []mcp.Content{&mcp.TextContent{Text: r.text()}}
	if r.image != nil {
		content = append(content, r.image)
	}
	return &mcp.CallToolResult{
		Content:           content,
		StructuredContent: json.RawMessage(structured),
		IsError:           !r.succeeded,
	}, nil
}

// text is the output and a last line with the other fields that a model needs.
func (r *Result) text() string {
	var facts []string
	add := func(name string, given bool, value any) {
		if given {
			facts = append(facts, fmt.Sprintf("%s: %v", name, value))
		}
	}
	number := func(name string, value *int64) { add(name, value != nil, ptr.Deref(value, 0)) }
	add("exit_code", r.ExitCode != nil, ptr.Deref(r.ExitCode, 0))
	add("retry_safe", r.RetrySafe != nil, ptr.Deref(r.RetrySafe, false))
	add("phase", r.Reason == reasonNotFinished && r.Phase != "", r.Phase)
	add("call", r.Call != "", r.Call)
	add("session", r.Session != "", r.Session)
	add("signal", r.Signal != "", r.Signal)
	add("truncated", r.Truncated || r.File != nil && r.File.Truncated, true)
	add("refused", len(r.Refused) > 0, quoted(r.Refused))
	add("denied_hosts", len(r.DeniedHosts) > 0, quoted(destinations(r.DeniedHosts)))
	if f := r.File; f != nil {
		add("sha256", f.SHA256 != "", f.SHA256)
		number("next_offset", f.NextOffset)
		number("matches", f.Matches)
		number("replaced", f.Replaced)
		add("changed", f.Changed, true)
	}
	if s := r.Stream; s != nil {
		add("stream", true, s.Name)
		add("offset", true, s.Offset)
		add("next_offset", true, s.NextOffset)
		add("complete", true, s.Complete)
		add("missing", s.Missing > 0, s.Missing)
	}
	if len(facts) == 0 && r.succeeded {
		return r.Output
	}
	return strings.TrimRight(r.Output, "\n") + "\n\n[" + strings.Join(append([]string{"reason: " + r.Reason}, facts...), ", ") + "]"
}

// destinations are hosts with their ports. A lookup has none.
func destinations(denied []v1alpha1.DeniedHost) []string {
	var all []string
	for _, d := range denied {
		if d.Port == 0 {
			all = append(all, d.Host)
			continue
		}
		all = append(all, net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port))))
	}
	return all
}

// quoted lists paths or hosts on one line: a command chooses them.
func quoted(names []string) string {
	var all []string
	for _, name := range names {
		all = append(all, strconv.Quote(name))
	}
	return strings.Join(all, " ")
}
