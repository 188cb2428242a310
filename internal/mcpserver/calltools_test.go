package mcpserver

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/mcpserver/tools"
	"toolcall.dev/operator/internal/output"
)

// running has a call run until the test ends, and returns it.
func (f *fixture) running(session *mcp.ClientSession) *v1alpha1.ToolCall {
	f.t.Helper()
	var waiting sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	waiting.Go(func() {
		_, _ = session.CallTool(ctx, &mcp.CallToolParams{Name: "run_command", Arguments: fields{"command": "sleep 1000"}})
	})
	f.t.Cleanup(func() { cancel(); waiting.Wait() })
	return f.only("created", func(*v1alpha1.ToolCall) bool { return true })
}

func TestGetAndCancelACall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(untilCancelled)
	// The limit of running calls is reached: a call can still be asked for and cancelled.
	session := connected(t, newTestServer(t, f.local(), 1), nil)
	call := f.running(session)
	answer, result := use(t, session, "get_call", fields{"call": call.Name})
	if answer.IsError || result.Reason != reply.ReasonNotFinished || result.Phase != "Pending" || result.Call != call.Name ||
		!strings.Contains(textOf(answer), "phase: Pending") {
		t.Errorf("a call that runs: %+v", result)
	}
	answer, result = use(t, session, "cancel_call", fields{"call": call.Name})
	if answer.IsError || result.Phase != "Cancelled" || result.Reason != v1alpha1.ReasonCancelRequested || result.RetrySafe == nil {
		t.Errorf("a call that is cancelled: %+v", result)
	}
	for _, tool := range []string{"get_call", "cancel_call"} {
		if _, again := use(t, session, tool, fields{"call": call.Name}); again.Phase != "Cancelled" || again.Output != result.Output {
			t.Errorf("%s afterwards: %+v", tool, again)
		}
	}
}

// get_call waits for the end if it is asked to.
func TestGetACallThatEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	proceed := make(chan struct{})
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus { <-proceed; return echo(call) })
	session := connected(t, newTestServer(t, f.local(), 8), nil)
	call := f.running(session)
	if _, result := use(t, session, "get_call", fields{"call": call.Name, "timeout_seconds": 1}); result.Reason != reply.ReasonNotFinished {
		t.Errorf("before its end: %+v", result)
	}
	close(proceed)
	if answer, result := use(t, session, "get_call", fields{"call": call.Name, "timeout_seconds": 600}); answer.IsError || result.Output != "sleep 1000" || *result.ExitCode != 0 {
		t.Errorf("%+v", result)
	}
}

// The tools that create no call have a bound of their own.
func TestTooManyQueries(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(untilCancelled)
	s := newTestServer(t, f.local(), 1)
	session := connected(t, s, nil)
	call := f.running(session)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_, _ = session.CallTool(ctx, &mcp.CallToolParams{Name: "get_call", Arguments: fields{"call": call.Name, "timeout_seconds": 600}})
	})
	defer waiting.Wait()
	defer cancel()
	eventually(t, "query", func() bool {
		place, err := s.reserve(s.queries, f.local())
		if err == nil {
			place.Release()
		}
		return err != nil
	})
	for tool, arguments := range map[string]fields{
		"get_call": {"call": call.Name}, "cancel_call": {"call": call.Name}, "read_output": {"call": call.Name}, "list_environments": {}, "start_session": {},
		"end_session": {"session": "x"},
	} {
		answer, result := use(t, session, tool, arguments)
		if !answer.IsError || result.Reason != reply.ReasonTooManyCalls || !ptr.Deref(result.RetrySafe, false) {
			t.Errorf("%s: %+v", tool, result)
		}
	}
	if descriptionsOf(t, session)["run_command"] == "" {
		t.Error("the tools can't be listed")
	}
}

// Names of calls that don't exist, and of none that could.
func TestCallsThatAreNotThere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := connected(t, newTestServer(t, f.local(), 8), nil)
	for _, tool := range []string{"get_call", "cancel_call", "read_output"} {
		for name, reason := range map[string]string{
			"nobody": reply.ReasonNotFound, "": v1alpha1.ReasonInvalidArguments, "../x": v1alpha1.ReasonInvalidArguments, strings.Repeat("x", 1<<20): v1alpha1.ReasonInvalidArguments,
		} {
			answer, result := use(t, session, tool, fields{"call": name})
			if !answer.IsError || result.Reason != reason || !ptr.Deref(result.RetrySafe, false) || len(result.Output) > reply.MaxMessage {
				t.Errorf("%s %.20q: %+v", tool, name, result)
			}
		}
	}
}

func TestOutputIsReadInParts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	// é takes two bytes, the limit cuts it.
	const text = "0123456é8\xff"
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if call.Status.Phase != "" {
			return untilCancelled(call)
		}
		_, _ = outputs.Add(call, output.Stdout).Write([]byte(text))
		return &v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning}
	})
	session := connected(t, newTestServer(t, f.local(), 8), nil)
	call := f.running(session)
	f.only("running", func(c *v1alpha1.ToolCall) bool { return c.Status.Phase == v1alpha1.PhaseRunning })
	for name, test := range map[string]struct {
		arguments fields
		text      string
		want      reply.Stream
	}{
		"from the start":            {fields{"limit": 4}, "0123", reply.Stream{Name: "stdout", NextOffset: 4}},
		"up to a character":         {fields{"offset": 2, "limit": 6}, "23456", reply.Stream{Name: "stdout", Offset: 2, NextOffset: 7}},
		"less than a character":     {fields{"offset": 7, "limit": 1}, "\ufffd", reply.Stream{Name: "stdout", Offset: 7, NextOffset: 8}},
		"with a byte that is none":  {fields{"offset": 9}, "8\ufffd", reply.Stream{Name: "stdout", Offset: 9, NextOffset: 11}},
		"where nothing is yet":      {fields{"offset": 500}, "(nothing at offset 500 yet)", reply.Stream{Name: "stdout", Offset: 500, NextOffset: 500}},
		"of the other stream, none": {fields{"stream": "stderr", "offset": 1}, "(nothing at offset 1 yet)", reply.Stream{Name: "stderr", Offset: 1, NextOffset: 1}},
	} {
		test.arguments["call"] = call.Name
		if name == "of the other stream, none" {
			outputs.Add(call, output.Stderr)
		}
		answer, result := use(t, session, "read_output", test.arguments)
		if answer.IsError || result.Output != test.text || result.Stream == nil {
			t.Errorf("%s: %s", name, textOf(answer))
			continue
		}
		if diff := cmp.Diff(test.want, *result.Stream); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if !strings.HasPrefix(textOf(answer), test.text) || !strings.Contains(textOf(answer), "next_offset: ") {
			t.Errorf("%s: the text says %q", name, textOf(answer))
		}
	}
	for _, wrong := range []fields{{"offset": -1}, {"offset": 1.5}, {"limit": 0}, {"limit": tools.MaxRead + 1}, {"stream": "stdin"}, {"offset": "first"}} {
		wrong["call"] = call.Name
		if _, result := use(t, session, "read_output", wrong); result.Reason != v1alpha1.ReasonInvalidArguments {
			t.Errorf("%v: %+v", wrong, result)
		}
	}
}

// A stream that has ended is complete at every offset beyond its end.
func TestOutputBeyondTheEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		_, _ = outputs.Add(call, output.Stdout).Write([]byte("12345"))
		s := echo(call)
		s.Streams.Stdout.Bytes = 5
		return s
	})
	session := connected(t, newTestServer(t, f.local(), 8), nil)
	_, call := use(t, session, "run_command", fields{"command": "12345"})
	answer, result := use(t, session, "read_output", fields{"call": call.Call, "offset": 6})
	if answer.IsError || result.Stream == nil || !result.Stream.Complete || !strings.Contains(result.Output, "the stream has 5 bytes") {
		t.Errorf("%+v", result)
	}
}

// Output needs a right of its own, and the answer names it. Calls of others aren't read without the right to.
func TestOutputNeedsItsRight(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		_, _ = outputs.Add(call, output.Stdout).Write([]byte("all of it"))
		return echo(call)
	})
	logs := rbacv1.PolicyRule{APIGroups: []string{"subresources.toolcall.dev"}, Resources: []string{"toolcalls/log"}, Verbs: []string{"get"}}
	may, mayNot := s.session(s.user("may", runsCalls(), logs), "/mcp", withSessions), s.session(s.user("may-not", runsCalls()), "/mcp", withSessions)
	stranger := s.session(s.user("stranger", logs), "/mcp", withSessions)
	_, call := use(t, may, "run_command", fields{"command": "x"})
	if answer, result := use(t, may, "read_output", fields{"call": call.Call}); answer.IsError || !strings.HasPrefix(result.Output, "x") {
		t.Errorf("%+v", result)
	}
	if answer, result := use(t, mayNot, "read_output", fields{"call": call.Call}); !answer.IsError || result.Reason != "Forbidden" || !strings.Contains(result.Output, "toolcalls/log") {
		t.Errorf("without the right: %+v", result)
	}
	for _, tool := range []string{"read_output", "get_call", "cancel_call"} {
		if answer, result := use(t, stranger, tool, fields{"call": call.Call}); !answer.IsError || result.Reason != "Forbidden" {
			t.Errorf("%s of a user who may not read calls: %+v", tool, result)
		}
	}
}
