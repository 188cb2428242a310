package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/tasks"
	"toolcall.dev/operator/internal/output"
)

// taskState is what a client reads of a task, or of a result that is none.
type taskState struct {
	ResultType, TaskID, Status, StatusMessage string
	InputRequests                             map[string]struct {
		Method string
		Params struct{ Message string }
	}
	Result  taskResult
	Content []struct{ Text string }
}

// taskResult is a result within a task.
type taskResult struct {
	IsError    bool
	ResultType string
	Content    []struct{ Text string }
}

// says reports whether the text of a result starts with a text.
func (r *taskResult) says(text string) bool {
	return len(r.Content) == 1 && strings.HasPrefix(r.Content[0].Text, text)
}

// declares is what a client declares that knows tasks and shows forms.
var declares = fields{"extensions": fields{tasks.Extension: fields{}}, "elicitation": fields{}}

// message is a request of the newest protocol, with the capabilities of that request.
func message(t *testing.T, method string, params, capabilities fields) string {
	t.Helper()
	whole := maps.Clone(params)
	whole["_meta"] = fields{
		"io.modelcontextprotocol/protocolVersion": sessionless, "io.modelcontextprotocol/clientCapabilities": capabilities,
		"io.modelcontextprotocol/clientInfo": fields{"name": "test", "version": "1"},
	}
	raw, err := json.Marshal(fields{"jsonrpc": "2.0", "id": 1, "method": method, "params": whole})
	must(t, err)
	return string(raw)
}

// rpc sends a request over HTTP, and returns the result or the code of the error.
func (s *site) rpc(token, method string, params, capabilities fields) (state taskState, code int) {
	s.t.Helper()
	name := params["name"]
	if name == nil {
		name = params["taskId"]
	}
	raw := message(s.t, method, params, capabilities)
	_, _, body := s.request(http.MethodPost, "/mcp", raw, "Authorization", "Bearer "+token, protocolHeader, sessionless, "Mcp-Method", method, "Mcp-Name", name.(string))
	for line := range strings.Lines(body) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && strings.Contains(data, `"id":1`) {
			body = data
		}
	}
	var answer struct {
		Result *taskState
		Error  *struct{ Code int }
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || (answer.Result == nil) == (answer.Error == nil) {
		s.t.Fatalf("%s is answered with %q: %v", method, body, err)
	}
	if answer.Error != nil {
		return taskState{}, answer.Error.Code
	}
	return *answer.Result, 0
}

// newTaskSite is a site whose clients get a task at once.
func newTaskSite(t *testing.T) *site {
	s := newSite(t)
	s.server.tasks.After = time.Millisecond
	return s
}

// command starts a command as a client that knows tasks.
func (s *site) command(token string, arguments fields) taskState {
	s.t.Helper()
	made, code := s.rpc(token, "tools/call", fields{"name": "run_command", "arguments": arguments}, declares)
	if code != 0 || made.ResultType != "task" || made.Status != "working" || made.TaskID == "" {
		s.t.Fatalf("got %+v, error %d, want a task", made, code)
	}
	return made
}

// awaitState asks for a task until it is in a state.
func (s *site) awaitState(token, id, want string) taskState {
	s.t.Helper()
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
		got, code := s.rpc(token, "tasks/get", fields{"taskId": id}, declares)
		if code != 0 || got.TaskID != id || got.ResultType != "complete" {
			s.t.Fatalf("got %+v, error %d", got, code)
		}
		if got.Status == want {
			return got
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the task is %q, want %q: %s", got.Status, want, got.StatusMessage)
		}
	}
}

// A call that takes long is a task, whose end any server has, as the tool would have told it.
func TestALongCallIsATask(t *testing.T) {
	t.Parallel()
	s := newTaskSite(t)
	var may atomic.Bool
	s.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		switch {
		case call.Spec.Cancel:
			return untilCancelled(call)
		case !may.Load():
			return nil
		case call.Spec.Shell.Command == "bad":
			return finishedStatus(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit)
		}
		return echo(call)
	})
	token := s.user("agent", runsCalls())
	good, bad, stopped := s.command(token, fields{"command": "good"}), s.command(token, fields{"command": "bad"}), s.command(token, fields{"command": "stopped"})
	if got := s.awaitState(token, good.TaskID, "working"); got.Result.ResultType != "" {
		t.Errorf("a task that works has a result: %+v", got)
	}
	for range 2 { // the second time it is too late, which is the same to the client
		if ack, code := s.rpc(token, "tasks/cancel", fields{"taskId": stopped.TaskID}, declares); code != 0 || ack.ResultType != "complete" || ack.TaskID != "" {
			t.Errorf("cancel: %+v, error %d", ack, code)
		}
		if got := s.awaitState(token, stopped.TaskID, "cancelled"); got.StatusMessage == "" {
			t.Errorf("%+v", got)
		}
	}
	may.Store(true)
	s.touchCalls()
	// Another server, which never saw the request.
	other := *s
	other.replaceServer()
	if got := other.awaitState(token, good.TaskID, "completed"); got.Result.IsError || got.Result.ResultType != "complete" || !got.Result.says("good") {
		t.Errorf("%+v", got)
	}
	if got := other.awaitState(token, bad.TaskID, "completed"); !got.Result.IsError || !got.Result.says("output of NonZeroExit") {
		t.Errorf("%+v", got)
	}
}

// Over standard input and output, tasks are the same.
func TestTasksOverStdio(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.operate(untilCancelled)
	toServer, input := io.Pipe()
	output, fromServer := io.Pipe()
	server, served := newTestServer(t, f.local(), 8), make(chan error, 1)
	server.tasks.After = time.Millisecond
	go func() {
		served <- server.Run(context.Background(), &mcp.IOTransport{Reader: toServer, Writer: fromServer})
	}()
	lines := bufio.NewReader(output)
	exchange := func(method string, params fields) (state taskState) {
		t.Helper()
		_, err := io.WriteString(input, message(t, method, params, declares)+"\n")
		must(t, err)
		line, err := lines.ReadString('\n')
		must(t, err)
		must(t, json.Unmarshal([]byte(line), &struct{ Result *taskState }{&state}))
		return state
	}
	made := exchange("tools/call", fields{"name": "run_command", "arguments": fields{"command": "x"}})
	if got := exchange("tasks/get", fields{"taskId": made.TaskID}); made.ResultType != "task" || got.Status != "working" {
		t.Errorf("made %+v, then %+v", made, got)
	}
	exchange("tasks/cancel", fields{"taskId": made.TaskID})
	f.only("cancelled", func(c *v1alpha1.ToolCall) bool { return c.Status.Phase == v1alpha1.PhaseCancelled })
	if got := exchange("tasks/get", fields{"taskId": made.TaskID}); got.Status != "cancelled" {
		t.Errorf("%+v", got)
	}
	must(t, input.Close())
	must(t, <-served)
}

// replaceServer serves the site by a server that knows nothing.
func (s *site) replaceServer() {
	s.t.Helper()
	next := newSite(s.t, func(e *Endpoint) { e.Namespace = s.namespace })
	s.server, s.web = next.server, next.web
}

// touchCalls has operate look at all calls again.
func (s *site) touchCalls() {
	s.t.Helper()
	list := &v1alpha1.ToolCallList{}
	must(s.t, s.admin.List(s.t.Context(), list, client.InNamespace(s.namespace)))
	for i := range list.Items {
		before := list.Items[i].DeepCopy()
		metav1.SetMetaDataAnnotation(&list.Items[i].ObjectMeta, "touched", "yes")
		must(s.t, s.admin.Patch(s.t.Context(), &list.Items[i], client.MergeFrom(before)))
	}
}

// A short call has no task, and neither has one of a client that doesn't declare the extension on the request.
func TestWithoutATask(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.operate(echo)
	token := s.user("agent", runsCalls())
	got, code := s.rpc(token, "tools/call", fields{"name": "run_command", "arguments": fields{"command": "short"}}, declares)
	if code != 0 || got.ResultType != "complete" || !(&taskResult{Content: got.Content}).says("short") {
		t.Errorf("a short call: %+v, error %d", got, code)
	}
	s.server.tasks.After = 0
	got, code = s.rpc(token, "tools/call", fields{"name": "run_command", "arguments": fields{"command": "plain"}}, fields{})
	if code != 0 || got.ResultType != "complete" || !(&taskResult{Content: got.Content}).says("plain") {
		t.Errorf("a client without the extension: %+v, error %d", got, code)
	}
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		if _, code := s.rpc(token, method, fields{"taskId": "x"}, fields{}); code != -32021 {
			t.Errorf("%s without the extension: error %d", method, code)
		}
	}
	for _, method := range []string{"tasks/list", "tasks/result", "prompts/list", "resources/list", "resources/templates/list", "completion/complete"} {
		if _, code := s.rpc(token, method, fields{"taskId": "x"}, declares); code != -32601 {
			t.Errorf("%s: error %d", method, code)
		}
	}
}

// A task exists only for those who have its id and may read its call, in its namespace.
func TestTasksOfOthersDoNotExist(t *testing.T) {
	t.Parallel()
	s := newTaskSite(t)
	s.operate(untilCancelled)
	token, stranger := s.user("agent", runsCalls()), s.user("stranger")
	made := s.command(token, fields{"command": "x"})
	elsewhere := *s
	elsewhere.replaceNamespace()
	parts := strings.Split(made.TaskID, ".")
	parts[2] = strings.Repeat("A", len(parts[2]))
	guessed := strings.Join(parts, ".")
	for name, test := range map[string]struct {
		site      *site
		token, id string
	}{
		"without the right to read the call": {s, stranger, made.TaskID}, "in another namespace": {&elsewhere, token, made.TaskID},
		"with guessed bits": {s, token, guessed}, "with nothing": {s, token, ""}, "with a name": {s, token, parts[3]},
	} {
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			if got, code := test.site.rpc(test.token, method, fields{"taskId": test.id}, declares); code != -32602 {
				t.Errorf("%s %s: %+v, error %d", method, name, got, code)
			}
		}
	}
	if call := s.only("there", func(*v1alpha1.ToolCall) bool { return true }); call.Spec.Cancel {
		t.Error("somebody else cancelled the call")
	}
}

// replaceNamespace serves the site's users in another namespace.
func (s *site) replaceNamespace() {
	s.t.Helper()
	next := newSite(s.t)
	s.server, s.web = next.server, next.web
}

// A repeated request with the same request_id is about the same call. Both ids lead to it.
func TestARepeatedRequestHasTheSameCall(t *testing.T) {
	t.Parallel()
	s := newTaskSite(t)
	s.operate(untilCancelled)
	token := s.user("agent", runsCalls())
	first, second := s.command(token, fields{"command": "x", "request_id": "1"}), s.command(token, fields{"command": "x", "request_id": "1"})
	s.only("the one call", func(*v1alpha1.ToolCall) bool { return true })
	if _, code := s.rpc(token, "tasks/cancel", fields{"taskId": second.TaskID}, declares); code != 0 {
		t.Fatalf("error %d", code)
	}
	s.awaitState(token, first.TaskID, "cancelled")
	s.awaitState(token, second.TaskID, "cancelled")
}

// A call is created with its task: nobody writes to it later. That of an earlier request gets another task only with the right to change the
// call; without it, the client waits for the end, and gets no output twice.
func TestACallThatCannotHaveATask(t *testing.T) {
	t.Parallel()
	s := newTaskSite(t)
	var may atomic.Bool
	s.operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		switch {
		case call.Status.Phase == "":
			_, _ = outputs.Add(call, output.Stdout).Write([]byte("live"))
			outputs.Add(call, output.Stderr)
			return &v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning}
		case !may.Load():
			return nil
		}
		return echo(call)
	})
	rule, arguments := runsCalls(), fields{"command": "x", "request_id": "1"}
	rule.Verbs = []string{"create", "get", "list", "watch"}
	logs := rbacv1.PolicyRule{APIGroups: []string{"subresources.toolcall.dev"}, Resources: []string{"toolcalls/log"}, Verbs: []string{"get"}}
	agent := s.user("agent", rule, logs)
	s.command(agent, arguments)
	s.server.tasks.After = time.Second
	time.AfterFunc(3*time.Second, func() {
		may.Store(true)
		s.touchCalls()
	})
	params := fields{"name": "run_command", "arguments": arguments}
	raw := strings.Replace(message(t, "tools/call", params, declares), `"_meta":{`, `"_meta":{"progressToken":"p",`, 1)
	_, _, body := s.request(http.MethodPost, "/mcp", raw, "Authorization", "Bearer "+agent, protocolHeader, sessionless, "Mcp-Method", "tools/call", "Mcp-Name", "run_command")
	if !strings.Contains(body, `"text":"x`) || !strings.Contains(body, `"resultType":"complete"`) || strings.Count(body, `"message":"live"`) > 1 {
		t.Errorf("got %s", body)
	}
}

// A header that names another task is a mistake, or an attempt to mislead a proxy.
func TestTheHeaderOfATaskIsChecked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"a","_meta":{"io.modelcontextprotocol/protocolVersion":%q,`+
		`"io.modelcontextprotocol/clientCapabilities":{"extensions":{%q:{}}}}}}`, sessionless, tasks.Extension)
	_, _, got := s.request(http.MethodPost, "/mcp", body, "Authorization", "Bearer "+s.user("agent"), protocolHeader, sessionless, "Mcp-Method", "tasks/get", "Mcp-Name", "b")
	if !strings.Contains(got, `"code":-32020`) {
		t.Errorf("got %s", got)
	}
}
