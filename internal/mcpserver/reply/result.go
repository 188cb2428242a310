package reply

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
	ReasonTooManyCalls      = "TooManyCalls"
	ReasonRequestIDConflict = "RequestIDConflict"
	ReasonNotFinished       = "NotFinished"
	ReasonNotFound          = "NotFound"
	ReasonDeleted           = "Deleted"
	ReasonUnknown           = "Unknown"
)

// MaxMessage bounds the part of an error message that is passed on, in bytes.
const MaxMessage = 4 << 10

// Result is the outcome of a tool, and the structured part of its answer. Clients show a model either the text of an answer
// or its structured part, so each of them holds everything.
type Result struct {
	Output    string `json:"output"`
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

	File   *File   `json:"file,omitempty"`
	Stream *Stream `json:"stream,omitempty"`

	Environments []Environment `json:"environments,omitzero"`
	More         bool          `json:"more,omitempty"`

	// Succeeded is true unless the answer is an error.
	Succeeded bool `json:"-"`
	// Image is what read_file shows of an image; nil for everything else.
	Image *mcp.ImageContent `json:"-"`
}

// File is what a file tool did, with the meaning of the fields of the same name in the status of a call.
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
		Output: cmp.Or(s.Output, s.Message), Reason: s.Reason, RetrySafe: s.RetrySafe, ExitCode: s.ExitCode, Call: call.Name, Phase: string(s.Phase),
		Signal: s.Signal, File: fileOf(s.File), Succeeded: s.Phase == v1alpha1.PhaseSucceeded,
	}
	if !r.Succeeded && r.RetrySafe == nil {
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

func fileOf(f *v1alpha1.FileStatus) *File {
	if f == nil {
		return nil
	}
	return &File{
		Path: f.Path, Bytes: f.Bytes, SHA256: f.SHA256, Lines: f.Lines, Matches: f.Matches, Truncated: f.Truncated,
		NextOffset: f.NextOffset, Changed: f.Changed, Created: f.Created, Replaced: f.Replaced, Binary: f.Binary,
	}
}

// Running is the result of a call that has not finished, which isn't a failure.
func Running(call *v1alpha1.ToolCall) *Result {
	r := Of(call)
	r.Reason, r.RetrySafe, r.Succeeded = ReasonNotFinished, nil, true
	if r.Phase == "" {
		r.Phase = string(v1alpha1.PhasePending)
	}
	r.Output = fmt.Sprintf("call %s has not finished; read_output has what it wrote so far", call.Name)
	return r
}

// Encode encodes the answer. Every outcome but success sets isError, so that the model reacts to it.
func (r *Result) Encode() (*mcp.CallToolResult, error) {
	structured, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the result of call %s: %w", r.Call, err)
	}
	content := []mcp.Content{&mcp.TextContent{Text: r.text()}}
	if r.Image != nil {
		content = append(content, r.Image)
	}
	return &mcp.CallToolResult{
		Content:           content,
		StructuredContent: json.RawMessage(structured),
		IsError:           !r.Succeeded,
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
	add("phase", r.Reason == ReasonNotFinished && r.Phase != "", r.Phase)
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
	if len(facts) == 0 && r.Succeeded {
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
