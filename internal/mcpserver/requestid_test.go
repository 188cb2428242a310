package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/mcpserver/tools"
)

// The same id with the same arguments gives the result of one call, also when replicas get it twenty times at once.
func TestARequestIDRunsOneCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(echo)
	sessions := []*mcp.ClientSession{connected(t, newTestServer(t, f.local(), 64), nil), connected(t, newTestServer(t, f.local(), 64), nil)}
	names := make([]string, 20)
	var running sync.WaitGroup
	for i := range names {
		running.Go(func() {
			// The order of names and an empty argument make no difference.
			arguments := fields{"command": "once", "env": fields{"A": "1", "B": "2"}, "request_id": "id-1"}
			if i%3 == 0 {
				arguments["stdin"], arguments["timeout_seconds"] = "", 120.0
			}
			answer, result := use(t, sessions[i%2], "run_command", arguments)
			if answer.IsError || result.Output != "once" {
				t.Errorf("%+v", result)
			}
			names[i] = result.Call
		})
	}
	running.Wait()
	call := f.only("finished", func(c *v1alpha1.ToolCall) bool { return c.Status.Phase.Terminal() })
	for _, name := range names {
		if name != call.Name {
			t.Errorf("an answer is about %s, not %s", name, call.Name)
		}
	}
	// Later, too, with the arguments in another order.
	if _, result := use(t, sessions[0], "run_command", fields{"request_id": "id-1", "env": fields{"B": "2", "A": "1"}, "command": "once"}); result.Call != call.Name {
		t.Errorf("%+v", result)
	}
}

// The same id with other arguments is an error, and runs nothing.
func TestARequestIDWithOtherArguments(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(echo)
	session := connected(t, newTestServer(t, f.local(), 64), nil)
	_, first := use(t, session, "run_command", fields{"command": "a", "request_id": "x"})
	for name, test := range map[string]struct {
		tool      string
		arguments fields
	}{
		"another command":     {"run_command", fields{"command": "b", "request_id": "x"}},
		"a variable more":     {"run_command", fields{"command": "a", "env": fields{"A": ""}, "request_id": "x"}},
		"another time limit":  {"run_command", fields{"command": "a", "timeout_seconds": 7, "request_id": "x"}},
		"another environment": {"run_command", fields{"command": "a", "environment": "e", "request_id": "x"}},
		"a session":           {"run_command", fields{"command": "a", "session": "s", "request_id": "x"}},
		"another tool":        {"run_program", fields{"program": "a", "request_id": "x"}},
	} {
		answer, result := use(t, session, test.tool, test.arguments)
		if !answer.IsError || result.Reason != reply.ReasonRequestIDConflict || result.Call != first.Call || !ptr.Deref(result.RetrySafe, false) ||
			!strings.Contains(result.Output, "with other arguments") {
			t.Errorf("%s: %+v", name, result)
		}
	}
	f.only("finished", func(c *v1alpha1.ToolCall) bool { return c.Status.Phase.Terminal() })
	if _, other := use(t, session, "run_command", fields{"command": "a", "request_id": "X"}); other.Call == first.Call || other.Output != "a" {
		t.Errorf("another id: %+v", other)
	}
}

// Two users can use the same id. Nobody can take the name of another's call in advance.
func TestRequestIDsBelongToTheirUsers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.operate(echo)
	one, other := s.session(s.user("one", runsCalls()), "/mcp", withSessions), s.session(s.user("other", runsCalls()), "/mcp", "")
	arguments := fields{"command": "hello", "request_id": "same"}
	_, first := use(t, one, "run_command", arguments)
	if _, second := use(t, other, "run_command", arguments); first.Call == "" || second.Call == "" || first.Call == second.Call || second.Output != "hello" {
		t.Errorf("%+v and %+v", first, second)
	}

	// Somebody who knows the id of another user creates the call of that name, with the same annotation.
	call := &v1alpha1.ToolCall{}
	must(t, s.admin.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: first.Call}, call))
	by := call.Spec.RequestedBy
	squatted := fields{"command": "hello", "request_id": "next"}
	taken := &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: nameFor(by.Username, by.UID, "ToolCall", "next"), Annotations: call.Annotations},
		Spec:       v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "hello"}, TimeoutSeconds: new(int32(120))},
	}
	must(t, s.admin.Create(t.Context(), taken))
	answer, result := use(t, one, "run_command", squatted)
	if !answer.IsError || result.Reason != reply.ReasonRequestIDConflict || result.Call != "" || !strings.Contains(result.Output, "somebody else created") {
		t.Errorf("%+v", result)
	}
}

func TestInvalidRequestIDs(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{
		"too long": strings.Repeat("x", 257), "a space": "a b", "a line": "a\nb", "a NUL": "a\x00", "a letter of another script": "é", "half a character": "\ufffd",
	} {
		if _, err := tools.RunCommand.Parse(encode(t, fields{"command": "x", "request_id": id})); err == nil || !strings.Contains(err.Error(), "request_id: must be") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, id := range []string{"", "x", strings.Repeat("~", 256), "../../a", `"'{}`, "0b64a5e4-8a5f-4d8b-9f3e-0123456789ab"} {
		r, err := tools.RunCommand.Parse(encode(t, fields{"command": "x", "request_id": id}))
		if err != nil || r.ID != id {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func encode(t *testing.T, value any) []byte {
	t.Helper()
	raw, err := json.Marshal(value)
	must(t, err)
	return raw
}

// Names are valid names of objects, and differ for every part that they are made from.
func TestNamesOfRequestIDs(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, parts := range [][4]string{
		{"u", "", "ToolCall", "id"}, {"u", "i", "ToolCall", "d"}, {"ui", "", "ToolCall", "d"}, {"u", "", "ToolSession", "id"},
		{"u", "", "ToolCall", "ID"}, {"", "u", "ToolCall", "id"}, {`u","`, "", "ToolCall", "id"}, {"u", `","ToolCall`, "", "id"},
	} {
		name := nameFor(parts[0], parts[1], parts[2], parts[3])
		if !strings.HasPrefix(name, namedPrefix) || len(name) > 63 {
			t.Errorf("%q", name)
		}
		if other, again := seen[name]; again {
			t.Errorf("%q and %s have one name", parts, other)
		}
		seen[name] = fmt.Sprintf("%q", parts)
	}
}

// A client that stops waiting finds the result of its call again.
func TestACallWithARequestIDOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	proceed := make(chan struct{})
	f.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if call.Spec.Cancel {
			return untilCancelled(call)
		}
		<-proceed
		return echo(call)
	})
	session := connected(t, newTestServer(t, f.local(), 8), nil)
	arguments := fields{"command": "late", "request_id": "again"}
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan struct{})
	go func() {
		defer close(gaveUp)
		_, _ = session.CallTool(ctx, &mcp.CallToolParams{Name: "run_command", Arguments: arguments})
	}()
	f.only("created", func(*v1alpha1.ToolCall) bool { return true })
	cancel()
	<-gaveUp
	close(proceed)
	answer, result := use(t, session, "run_command", arguments)
	if answer.IsError || result.Output != "late" || result.Phase != "Succeeded" {
		t.Errorf("%+v", result)
	}
	f.only("finished", func(c *v1alpha1.ToolCall) bool { return !c.Spec.Cancel && c.Status.Phase.Terminal() })
}

// A server that stops leaves such a call running, and says how to go on.
func TestStoppingLeavesACallWithARequestID(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(untilCancelled)
	s := newTestServer(t, f.local(), 8)
	session := connected(t, s, nil)
	go func() {
		f.only("created", func(*v1alpha1.ToolCall) bool { return true })
		s.Stop()
	}()
	answer, result := use(t, session, "run_command", fields{"command": "x", "request_id": "r"})
	if !answer.IsError || result.Reason != reply.ReasonNotFinished || result.Call == "" || ptr.Deref(result.RetrySafe, true) {
		t.Errorf("%+v", result)
	}
	f.only("left alone", func(c *v1alpha1.ToolCall) bool { return !c.Spec.Cancel && c.Name == result.Call })
}

// After the call was deleted, its id stands for a new one.
func TestARequestIDAfterItsCallWasDeleted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(echo)
	session := connected(t, newTestServer(t, f.local(), 8), nil)
	arguments := fields{"command": "x", "request_id": "r"}
	_, first := use(t, session, "run_command", arguments)
	call := f.only("finished", func(c *v1alpha1.ToolCall) bool { return c.Status.Phase.Terminal() })
	must(t, f.admin.Delete(t.Context(), call))
	_, second := use(t, session, "run_command", fields{"command": "y", "request_id": "r"})
	if second.Call != first.Call || second.Output != "y" {
		t.Errorf("%+v", second)
	}
}

// A lost response doesn't make a call run twice, and isn't taken for another's call.
func TestALostResponseWithARequestID(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(echo)
	requester := f.local()
	requester.Objects = &flaky{objects: requester.Objects, lose: 1, after: true}
	answer, result := use(t, connected(t, newTestServer(t, requester, 8), nil), "run_command", fields{"command": "once", "request_id": "r"})
	if answer.IsError || result.Output != "once" {
		t.Errorf("%+v", result)
	}
	f.only("finished", func(c *v1alpha1.ToolCall) bool { return c.Status.Phase.Terminal() })
}
