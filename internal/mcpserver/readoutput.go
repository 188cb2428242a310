package mcpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/output"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/result"
)

const (
	// readPatience is how long the API for output may be away, readTimeout how long all takes.
	readPatience = 10 * time.Second
	readTimeout  = 30 * time.Second
	// maxShownPath bounds a path in a message, in bytes.
	maxShownPath = 256
)

// reasonOutputUnavailable is the reason of an output that can't be read, when the API server gives no other.
const reasonOutputUnavailable = "OutputUnavailable"

// readOutput returns a part of a stream of a call.
func (s *Server) readOutput(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester, query *outputclient.Query) (*reply.Result, error) {
	if query.Namespace != "" && query.Namespace != who.Namespace {
		return nil, &failure{reason: reply.ReasonNotFound, message: fmt.Sprintf(
			"the artifact is of a call in another namespace than %s, which this connection is for", who.Namespace)}
	}
	call, err := findCall(ctx, who, query.Name)
	if err != nil {
		return nil, err
	}
	kept, err := keptFile(call, query.Artifact)
	if err != nil {
		return nil, err
	}
	query.Namespace, query.UID, query.Patience = who.Namespace, call.UID, readPatience
	image, err := s.imageOf(ctx, req.Extra, who, kept, query)
	if err != nil {
		return nil, unreadable(who, call, err)
	}
	if image != nil {
		image.Phase = string(call.Status.Phase)
		return image, nil
	}
	query.Limit = min(query.Limit, int64(reply.Room(s.options.MaxAnswer)))
	part, err := readPart(ctx, who, query)
	if err != nil {
		return nil, unreadable(who, call, err)
	}
	return part.result(call, kept, query), nil
}

// keptFile returns the file of a path that a call kept; nil where none is asked for.
func keptFile(call *v1alpha1.ToolCall, path string) (*v1alpha1.Artifact, error) {
	if path == "" {
		return nil, nil
	}
	var kept []string
	for i := range call.Status.Artifacts {
		if call.Status.Artifacts[i].Path == path {
			return &call.Status.Artifacts[i], nil
		}
		kept = append(kept, reply.Plain(call.Status.Artifacts[i].Path))
	}
	message := fmt.Sprintf("call %s kept no file %q", call.Name, bounds.Text(path, maxShownPath))
	switch {
	case !follow.Finished(call):
		message += ": it has not finished, and keeps files at its end"
	case len(kept) > 0:
		message += ", but " + bounds.Text(strings.Join(kept, ", "), reply.MaxMessage)
	default:
		message += ", and no other: pass collect to the tool that runs it"
	}
	return nil, &failure{reason: reply.ReasonNotFound, call: call.Name, message: message}
}

// part is what was read of a stream.
type part struct {
	data     []byte
	next     int64
	complete bool
	missing  int64
	// beyond says that the stream has no byte at the offset, or none yet.
	beyond bool
}

// readPart reads what a query asks for. There may be nothing at its offset, or nothing yet.
func readPart(ctx context.Context, who *identity.Requester, query *outputclient.Query) (*part, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	p := &part{}
	end, err := who.Output.Copy(ctx, *query, outputclient.Sink{
		Write:   func(chunk []byte) error { p.data = append(p.data, chunk...); return nil },
		Missing: func(start, end int64) { p.missing += end - start },
	})
	p.next, p.complete = end.Offset, end.Complete
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code == http.StatusRequestedRangeNotSatisfiable {
		p.next, p.beyond = query.Offset, true
		return p, nil
	}
	return p, err
}

// result describes the part. A character that the limit cuts is left for the next part.
func (p *part) result(call *v1alpha1.ToolCall, kept *v1alpha1.Artifact, query *outputclient.Query) *reply.Result {
	if whole := result.TrimPartialEnd(p.data); !p.complete && len(whole) > 0 {
		p.next -= int64(len(p.data) - len(whole))
		p.data = whole
	}
	p.complete = p.complete || p.beyond && follow.Finished(call)
	r := &reply.Result{
		Output: strings.ToValidUTF8(string(p.data), "\uFFFD"), Reason: v1alpha1.ReasonCompleted, Call: call.Name, Phase: string(call.Status.Phase),
		Stream:    &reply.Stream{Name: cmp.Or(query.Artifact, string(query.Stream)), Offset: query.Offset, NextOffset: p.next, Complete: p.complete, Missing: p.missing},
		Succeeded: true,
	}
	switch {
	case p.isBinary(kept, query):
		r.Output = p.describe(call, kept, query)
	case len(p.data) > 0:
	case !follow.Finished(call):
		r.Output = fmt.Sprintf("(nothing at offset %d yet)", query.Offset)
	case kept == nil && p.beyond && call.Status.Streams != nil:
		r.Output = fmt.Sprintf("(nothing at offset %d: the stream has %d bytes)", query.Offset, lengthOf(call, query.Stream))
	default:
		r.Output = fmt.Sprintf("(nothing at offset %d)", query.Offset)
	}
	return r
}

// isBinary reports whether a part is no text. A file is none if anything in it isn't UTF-8 or is a NUL; what commands write, and what was
// kept as a text, only if that is more than a few bytes and than a quarter of it. Characters that the ends of the part cut don't count.
func (p *part) isBinary(kept *v1alpha1.Artifact, query *outputclient.Query) bool {
	rest := result.TrimPartialEnd(p.data)
	if query.Offset > 0 {
		rest = result.TrimPartialStart(rest)
	}
	if kept == nil || strings.HasPrefix(kept.MediaType, "text/") {
		return result.IsBinary(rest)
	}
	return result.WrongBytes(rest) > 0
}

// describe says what a part is that isn't shown, and how to get it.
func (p *part) describe(call *v1alpha1.ToolCall, kept *v1alpha1.Artifact, query *outputclient.Query) string {
	if kept == nil {
		what := fmt.Sprintf("%d bytes of %s from offset %d", len(p.data), query.Stream, query.Offset)
		return result.NotShown(what, call.Namespace, call.Name, string(query.Stream))
	}
	return fmt.Sprintf("%q is a binary file of %d bytes (%s), which isn't shown as text: kubectl toolcall artifacts %s %q -n %s gets it; "+
		"in a session, look into it with a program such as file or xxd.",
		kept.Path, kept.Bytes, cmp.Or(kept.MediaType, "of no known type"), call.Name, kept.Path, call.Namespace)
}

// lengthOf returns the length of a stream of a call whose status has it.
func lengthOf(call *v1alpha1.ToolCall, stream output.Stream) int64 {
	if stream == output.Stderr {
		return call.Status.Streams.Stderr.Bytes
	}
	return call.Status.Streams.Stdout.Bytes
}

// unreadable explains that the output of a call can't be read.
func unreadable(who *identity.Requester, call *v1alpha1.ToolCall, err error) error {
	reason, message := apiReason(err), explain(who, err)
	switch {
	case apierrors.IsForbidden(err):
		message = "the output needs permission to get toolcalls/log in the group subresources.toolcall.dev, which the ClusterRole toolcall-user grants, and " +
			"of a call in a session the right to use the session: " + bounds.Text(err.Error(), reply.MaxMessage)
	case reason == reply.ReasonUnknown:
		reason = reasonOutputUnavailable
	}
	return &failure{reason: reason, call: call.Name, message: message}
}
