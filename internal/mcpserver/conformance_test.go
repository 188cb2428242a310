package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/mcpserver/tasks"
	"toolcall.dev/operator/internal/mcpserver/tools"
	"toolcall.dev/operator/internal/testing/full"
)

// newSuiteSite is a site behind a proxy that adds the tokens: those of requests about the state and the input of tasks are a human's, all
// others the agent's. It returns the URL of the proxy.
func newSuiteSite(t *testing.T) (*site, string) {
	proxy := httptest.NewUnstartedServer(nil)
	address := proxy.Listener.Addr().(*net.TCPAddr)
	s := newSite(t, func(e *Endpoint) {
		e.AllowedOrigins = []string{"http://" + address.String(), fmt.Sprintf("http://localhost:%d", address.Port)}
		e.MaxSessions, e.MaxSessionsPerTenant, e.MaxSessionsPerUser = 512, 512, 512
	})
	agent, human := s.user("agent", runsCalls()), s.user("human", approves()...)
	target, err := url.Parse(s.web.URL)
	must(t, err)
	proxy.Config.Handler = &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		token := agent
		if method := r.In.Header.Get("Mcp-Method"); method == "tasks/get" || method == "tasks/update" {
			token = human
		}
		r.Out.Header.Set("Authorization", "Bearer "+token)
		r.Out.Host = r.In.Host
	}}
	proxy.Start()
	t.Cleanup(proxy.Close)
	return s, proxy.URL
}

// conformance runs the public conformance suite against the server at a URL.
func conformance(t *testing.T, url string, arguments ...string) {
	t.Helper()
	modules, err := filepath.Abs("../../bin/test/node/conformance/node_modules")
	must(t, err)
	node, err := filepath.Glob(filepath.Join(modules, "node-linux-*", "bin", "node"))
	if err != nil || len(node) != 1 {
		t.Fatalf("%s has no Node.js for this machine, but %q: run `make test-programs`", modules, node)
	}
	arguments = append([]string{filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"), "server", "--output-dir", "results", "--url", url + "/mcp"}, arguments...)
	cmd := exec.CommandContext(t.Context(), node[0], arguments...)
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the conformance suite: %v\n%s\n%s", err, out, failedChecks(t, cmd.Dir))
	}
}

// failedChecks are the checks that failed, as the baseline names them, and why. The suite prints only the scenarios.
func failedChecks(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "results", "*", "checks.json"))
	must(t, err)
	var list strings.Builder
	for _, file := range files {
		raw, err := os.ReadFile(file)
		must(t, err)
		var checks []struct{ ID, Status, ErrorMessage string }
		must(t, json.Unmarshal(raw, &checks))
		for _, c := range checks {
			if c.Status == "FAILURE" || c.Status == "WARNING" {
				fmt.Fprintf(&list, "%s: %s: %s\n", filepath.Base(filepath.Dir(file)), c.ID, c.ErrorMessage)
			}
		}
	}
	return list.String()
}

// The server conforms to the protocol, but for scenarios that need tools, prompts and resources of the suite's own.
func TestConformance(t *testing.T) {
	full.Only(t, "the conformance suite takes minutes")
	baseline, err := filepath.Abs("testdata/conformance.yaml")
	must(t, err)
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			s, url := newSuiteSite(t)
			s.operate(echo)
			conformance(t, url, "--suite", "all", "--spec-version", revision, "--expected-failures", baseline)
		})
	}
}

// A server with the tools that the suite wants, each of which is a ToolCall, passes all scenarios of the Tasks extension but one, which
// the suite only announces.
func TestConformanceOfTasks(t *testing.T) {
	full.Only(t, "the conformance suite takes minutes")
	for _, scenario := range []string{
		"tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal", "tasks-request-headers",
		"tasks-dispatch-and-envelope", "tasks-mrtr-input", "tasks-required-task-error", "tasks-mrtr-composition",
	} {
		t.Run(scenario, func(t *testing.T) {
			s, url := newSuiteSite(t)
			s.server.tasks.After = 200 * time.Millisecond
			s.addSuiteTools()
			s.operate(s.runSuiteCall)
			conformance(t, url, "--scenario", scenario)
		})
	}
}

// suiteArguments are those of all tools of the suite that matter.
type suiteArguments struct {
	Name    string
	Seconds float64
}

// anyObject is the schema of what tools of the suite take.
var anyObject = &jsonschema.Schema{Type: "object"}

// Commands of the suite's calls, which runSuiteCall knows.
const (
	slowCommand, failCommand, brokenCommand, askCommand, askTwiceCommand = "slow", "fail", "broken", "ask", "ask twice"
)

// addSuiteTools adds the tools of the suite. Each but greet, which is answered at once, creates a call.
func (s *site) addSuiteTools() {
	s.addSuiteTool("slow_compute", func(a suiteArguments) string { return fmt.Sprint(slowCommand, " ", a.Seconds) }, nil)
	s.addSuiteTool("failing_job", func(suiteArguments) string { return failCommand }, needsTasks)
	s.addSuiteTool("protocol_error_job", func(suiteArguments) string { return brokenCommand }, nil)
	s.addSuiteTool("confirm_delete", func(suiteArguments) string { return askCommand }, nil)
	s.addSuiteTool("multi_input", func(suiteArguments) string { return askTwiceCommand }, nil)
	s.addSuiteTool("test_tool_with_task", func(a suiteArguments) string { return slowCommand + " 1 " + a.Name }, asksForName)
	s.server.tools["greet"] = suiteTool("greet")
	s.server.mcp.AddTool(s.server.tools["greet"].Define(&tools.Facts{}), func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var read suiteArguments
		err := json.Unmarshal(req.Params.Arguments, &read)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Hello, " + read.Name + "!"}}}, err
	})
	s.server.tasks.Answer = func(ctx context.Context, extra *mcp.RequestExtra, asked mcp.Meta, who *identity.Requester, call *v1alpha1.ToolCall) (*mcp.CallToolResult, error) {
		if call.Spec.Shell.Command == brokenCommand {
			return nil, errors.New("the tool is broken")
		}
		return s.server.answerOf(ctx, extra, asked, who, call)
	}
	s.server.tasks.Inputs = suiteInputs{f: s.fixture}
}

// suiteTool is a tool of the suite without what it does.
func suiteTool(name string) tool {
	return tool{Tool: tools.Tool{Name: name, Description: func(*tools.Facts) string { return name }, Input: anyObject, Hints: &mcp.ToolAnnotations{}}, creates: true}
}

// addSuiteTool adds a tool that creates a call of a command. First answers a request instead, or changes it.
func (s *site) addSuiteTool(name string, command func(suiteArguments) string, first func(*mcp.CallToolRequest) (*mcp.CallToolResult, error)) {
	t := suiteTool(name)
	t.run = func(ctx context.Context, req *mcp.CallToolRequest, who *identity.Requester) (*reply.Result, error) {
		var read suiteArguments
		if err := json.Unmarshal(req.Params.Arguments, &read); err != nil {
			return nil, err
		}
		return s.server.run(ctx, req, who, &tools.CallRequest{Spec: v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: command(read)}}})
	}
	s.server.tools[name] = t
	run := s.server.handler(t)
	s.server.mcp.AddTool(t.Define(&tools.Facts{}), func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if first != nil {
			if answer, err := first(req); answer != nil || err != nil {
				return answer, err
			}
		}
		return run(ctx, req)
	})
}

// needsTasks rejects clients that don't know tasks.
func needsTasks(req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if _, ok := req.ClientCapabilities().Extensions[tasks.Extension]; ok {
		return nil, nil
	}
	return nil, &jsonrpc.Error{
		Code: mcp.CodeMissingRequiredClientCapabilities, Message: "needs tasks", Data: []byte(`{"requiredCapabilities":{"extensions":{"` + tasks.Extension + `":{}}}}`),
	}
}

// asksForName asks the client for a name before the call is created.
func asksForName(req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	answer, ok := req.Params.InputResponses["user_name"].(*mcp.ElicitResult)
	if !ok {
		schema := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{"name": {Type: "string"}}}
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"user_name": &mcp.ElicitParams{Message: "name", RequestedSchema: schema}}}, nil
	}
	name, _ := answer.Content["name"].(string)
	req.Params.Arguments = []byte(`{"name":` + strconv.Quote(name) + `}`)
	return nil, nil
}

// suiteInputs has two questions about calls of askTwiceCommand; the answers are annotations of the call.
type suiteInputs struct {
	tasks.Approvals
	f *fixture
}

func (i suiteInputs) Pending(ctx context.Context, who *identity.Requester, call *v1alpha1.ToolCall) mcp.InputRequestMap {
	if call.Spec.Shell.Command != askTwiceCommand {
		return i.Approvals.Pending(ctx, who, call)
	}
	pending := mcp.InputRequestMap{}
	for _, key := range []string{"one", "two"} {
		if _, answered := call.Annotations[key]; !answered {
			pending[key] = &mcp.ElicitParams{Message: key, RequestedSchema: &jsonschema.Schema{Type: "object"}}
		}
	}
	return pending
}

func (i suiteInputs) Take(ctx context.Context, who *identity.Requester, call *v1alpha1.ToolCall, key string, answer json.RawMessage) error {
	if _, asked := i.Pending(ctx, who, call)[key]; !asked {
		return nil
	}
	if call.Spec.Shell.Command != askTwiceCommand {
		if err := i.Approvals.Take(ctx, who, call, key, answer); err != nil {
			return err
		}
	}
	// This has runSuiteCall look at the call again, too.
	before := call.DeepCopy()
	metav1.SetMetaDataAnnotation(&call.ObjectMeta, key, "answered")
	return i.f.admin.Patch(ctx, call, client.MergeFrom(before))
}

// runSuiteCall takes the place of the operator.
func (s *site) runSuiteCall(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
	command, rest, _ := strings.Cut(call.Spec.Shell.Command, " ")
	switch {
	case call.Spec.Cancel:
		return untilCancelled(call)
	case call.Spec.Shell.Command == askTwiceCommand && len(s.server.tasks.Inputs.Pending(s.t.Context(), nil, call)) > 0:
		return nil
	case call.Spec.Shell.Command == askTwiceCommand:
		return echo(call)
	case command == askCommand:
		return s.awaitPeople(call)
	case call.Status.Phase == v1alpha1.PhaseRunning:
		return nil
	}
	seconds, _ := strconv.ParseFloat(strings.Fields(rest + " 1")[0], 64)
	time.AfterFunc(time.Duration(seconds*float64(time.Second)), func() { s.finishSuiteCall(client.ObjectKeyFromObject(call)) })
	return &v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning, Reason: "Running"}
}

// finishSuiteCall ends a call whose time is over, unless the test ended before.
func (s *site) finishSuiteCall(key client.ObjectKey) {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		call := &v1alpha1.ToolCall{}
		if err := s.admin.Get(s.t.Context(), key, call); err != nil || call.Status.Phase.Terminal() {
			return err
		}
		call.Status = *echo(call)
		if call.Spec.Shell.Command == failCommand {
			call.Status = *finishedStatus(v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit)
		}
		return s.admin.Status().Update(s.t.Context(), call)
	})
	if err != nil && s.t.Context().Err() == nil {
		s.t.Errorf("finish call %s: %v", key, err)
	}
}
