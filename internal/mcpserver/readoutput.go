package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/output"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/result"
)

const (
	// defaultRead and maxRead are how many bytes read_output returns.
	defaultRead = 16 << 10
	maxRead     = 64 << 10
	// readPatience is how long the API for output may be away, readTimeout how long all takes.
	readPatience = 10 * time.Second
	readTimeout  = 30 * time.Second
)

// reasonOutputUnavailable is the reason of an output that can't be read, when the API server gives no other.
const reasonOutputUnavailable = "OutputUnavailable"

var readOutputTool = tool{
	name: "read_output", title: "Read the output of a call", output: answerSchema("call", "phase", "stream"), hints: readOnly(),
	description: func(*facts) string {
		return "Returns a part of what a call wrote to standard output or standard error, also what its result leaves out, and while it runs. " +
			"next_offset in the result says where to read on. Bytes that aren't UTF-8 become U+FFFD."
	},
}

func readOutputSpec(a *arguments) outputclient.Query {
	return outputclient.Query{
		Name:     readCallName(a),
		Stream:   output.Stream(a.choice("stream", "which stream; stdout if absent", string(output.Stdout), string(output.Stderr))),
		Offset:   ptr.Deref(a.number("offset", "first byte, counted from 0; 0 if absent", 0, maxOffset), 0),
		Limit:    ptr.Deref(a.number("limit", fmt.Sprintf("how many bytes; %d if absent", defaultRead), 1, maxRead), defaultRead),
		Patience: readPatience,
	}
}

// readOutput returns a part of a stream of a call.
func readOutput(ctx context.Context, _ *mcp.CallToolRequest, who *identity.Requester, query outputclient.Query) (*Result, error) {
	call, err := findCall(ctx, who, query.Name)
	if err != nil {
		return nil, err
	}
	query.Namespace = who.Namespace
	query.UID = call.UID
	part, err := readPart(ctx, who, &query)
	if err != nil {
		return nil, unreadable(who, call, err)
	}
	return part.result(call, &query), nil
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
func (p *part) result(call *v1alpha1.ToolCall, query *outputclient.Query) *Result {
	if whole := result.TrimPartialEnd(p.data); !p.complete && len(whole) > 0 {
		p.next -= int64(len(p.data) - len(whole))
		p.data = whole
	}
	p.complete = p.complete || p.beyond && follow.Finished(call)
	r := &Result{
		Output: strings.ToValidUTF8(string(p.data), "\uFFFD"), Reason: v1alpha1.ReasonCompleted, Call: call.Name, Phase: string(call.Status.Phase),
		Stream:    &StreamResult{Name: string(query.Stream), Offset: query.Offset, NextOffset: p.next, Complete: p.complete, Missing: p.missing},
		succeeded: true,
	}
	if len(p.data) > 0 {
		return r
	}
	switch {
	case !follow.Finished(call):
		r.Output = fmt.Sprintf("(nothing at offset %d yet)", query.Offset)
	case p.beyond && call.Status.Streams != nil:
		r.Output = fmt.Sprintf("(nothing at offset %d: the stream has %d bytes)", query.Offset, lengthOf(call, query.Stream))
	default:
		r.Output = fmt.Sprintf("(nothing at offset %d)", query.Offset)
	}
	return r
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
			"of a call in a session the right to use the session: " + bounds.Text(err.Error(), maxMessage)
	case reason == reasonUnknown:
		reason = reasonOutputUnavailable
	}
	return &failure{reason: reason, call: call.Name, message: message}
}
