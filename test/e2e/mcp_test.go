package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	mcpreply "toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/testing/built"
	"toolcall.dev/operator/internal/testing/full"
)

const mcpName = "toolcall-mcp"

// forwardMCP opens a way from this machine to the installed MCP server, as the cluster's network isn't reachable
// from here, and gives the server's URL.
func (s *suite) forwardMCP(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	forward := exec.CommandContext(ctx, kubectlPath(), "port-forward", "-n", operatorNamespace, "service/"+mcpName, ":443", "--address=127.0.0.1")
	said, err := forward.StdoutPipe()
	must(t, err)
	stderr := &strings.Builder{}
	forward.Stderr = stderr
	must(t, forward.Start())
	t.Cleanup(func() { cancel(); _ = forward.Wait() })
	lines := bufio.NewReader(said)
	line, err := lines.ReadString('\n')
	port := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindStringSubmatch(line)
	if port == nil {
		cancel()
		_ = forward.Wait()
		t.Fatalf("kubectl port-forward to the MCP server (`make deploy-mcp` installs it): %v: %s%s", err, line, stderr)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return "https://localhost:" + port[1] + "/mcp"
}

// authorityOfMCP is a file with the authority of the MCP server's certificate.
func (s *suite) authorityOfMCP(t *testing.T) string {
	t.Helper()
	kept, err := s.clients.CoreV1().Secrets(operatorNamespace).Get(t.Context(), mcpName+"-tls", metav1.GetOptions{})
	must(t, err)
	path := filepath.Join(t.TempDir(), "ca.crt")
	must(t, os.WriteFile(path, kept.Data[corev1.TLSCertKey], 0o600))
	return path
}

// newAccount makes a ServiceAccount that may create calls and use the tools, and gives a token of it for the API server and the MCP server.
func (sp *space) newAccount(t *testing.T, name string, tools ...string) (token string) {
	t.Helper()
	must(t, sp.client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: sp.namespace, Name: name}}))
	if len(tools) > 0 {
		subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: sp.namespace, Name: name}
		sp.letCreate(t, subject)
		sp.allow(t, name+"-tools", subject, use(tools...))
	}
	return sp.requestToken(t, name, append(sp.requestToken(t, name).Spec.Audiences, mcpName)...).Status.Token
}

// requestToken gets a token of an account for audiences, or for the API server, which then says what that is.
func (sp *space) requestToken(t *testing.T, account string, audiences ...string) *authenticationv1.TokenRequest {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	request, err := sp.clients.CoreV1().ServiceAccounts(sp.namespace).CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	must(t, err)
	return request
}

// overHTTP is the installed server for one user.
func (sp *space) overHTTP(t *testing.T, sdk, token string) mcpTarget {
	t.Helper()
	return mcpTarget{SDK: sdk, HTTP: &mcpHTTP{URL: sp.forwardMCP(t) + "/" + sp.namespace, Token: token, ca: sp.authorityOfMCP(t)}}
}

// overStdio is a server of one's own with a user's kubeconfig.
func (sp *space) overStdio(t *testing.T, sdk, token string) mcpTarget {
	t.Helper()
	conf := clientcmdapi.NewConfig()
	conf.Clusters["c"] = &clientcmdapi.Cluster{Server: sp.config.Host, CertificateAuthorityData: sp.config.CAData, CertificateAuthority: sp.config.CAFile}
	conf.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	conf.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: sp.namespace}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*conf, path))
	program, err := built.Program("mcp")
	must(t, err)
	return mcpTarget{SDK: sdk, Stdio: &mcpStdio{
		Command: program, Args: []string{"stdio", "--kubeconfig", path, "--context", "x"}, Env: map[string]string{},
	}}
}

// everyMCPClient runs a test over both transports, each with one of the SDKs, and in the full run with both.
func everyMCPClient(t *testing.T, test func(t *testing.T, sp *space, target func(token string) mcpTarget)) {
	for _, sdk := range []string{"v1", "v2"} {
		if sdk == "v1" || full.Run() {
			t.Run("stdio, SDK "+sdk, func(t *testing.T) {
				t.Parallel()
				sp := newSpace(t)
				test(t, sp, func(token string) mcpTarget { return sp.overStdio(t, sdk, token) })
			})
		}
		if sdk == "v2" || full.Run() {
			t.Run("HTTP, SDK "+sdk, func(t *testing.T) {
				t.Parallel()
				sp := newSpace(t)
				test(t, sp, func(token string) mcpTarget { return sp.overHTTP(t, sdk, token) })
			})
		}
	}
}

// What an agent can do, over each transport, with clients that aren't ours.
func TestMCPToolsDoWhatTheySay(t *testing.T) {
	t.Parallel()
	everyMCPClient(t, func(t *testing.T, sp *space, target func(string) mcpTarget) {
		a := startAgent(t, target(sp.newAccount(t, "agent", "bash", "printf", "python")))
		a.connect()
		checkListedTools(t, a)
		sp.awaitReady(t, defaultEnv, metav1.ConditionTrue, v1alpha1.ReasonReady)
		if got := a.use("list_environments", nil).fields().Environments; len(got) != 1 || got[0].Name != defaultEnv || !got[0].Default || !got[0].Ready {
			t.Errorf("environments: %+v", got)
		}
		for name, c := range mcpCases() {
			t.Run(name, func(t *testing.T) {
				got := a.use(c.tool, c.arguments)
				c.check(t, sp, got)
			})
		}
	})
}

// mcpCase is a call and what should come of it.
type mcpCase struct {
	tool      string
	arguments map[string]any
	want      outcome
	// text is in the text for the model.
	text string
}

func mcpCases() map[string]mcpCase {
	return map[string]mcpCase{
		"a command line": {
			"run_command", map[string]any{"command": "cat; echo $WHO at $PWD; echo err >&2", "stdin": "in ", "env": map[string]any{"WHO": "ünï"}, "working_dir": "/tmp"},
			with(succeeded("in ünï at /tmp\n"), "err\n"), "in ünï at /tmp\nerr\n\nTook ",
		},
		"a program": {
			"run_program", map[string]any{"program": "printf", "args": []string{"%s-", "a b", "c"}}, succeeded("a b-c-"), "a b-c-\n\nTook ",
		},
		"code": {
			"run_code", map[string]any{"language": "python", "code": "print(6 * 7)", "environment": defaultEnv}, succeeded("42\n"), "42\n\nTook ",
		},
		"an exit code": {
			"run_command", map[string]any{"command": "echo so far; exit 3"}, exited(3, "so far\n", ""), "so far\n\nCommand exited with code 3\n\nTook ",
		},
		"too long": {
			"run_command", map[string]any{"command": "echo begun; sleep 600", "timeout_seconds": 3}, stopped(v1alpha1.ReasonTimedOut, "SIGTERM", "begun\n"), "begun\n\nThe command was stopped at its limit of 3 s.\n\nTook ",
		},
		"a tool that the agent may not use": {
			"run_program", map[string]any{"program": "git", "args": []string{"status"}}, denied(v1alpha1.ReasonAgentNotAllowed), "git",
		},
		"code that the policy refuses": {
			"run_code", map[string]any{"language": "python", "code": "import socket"}, denied(v1alpha1.ReasonModuleNotAllowed), "socket",
		},
		"an environment that isn't there": {
			"run_command", map[string]any{"command": "true", "environment": "nowhere"}, neverRan(v1alpha1.ReasonEnvironmentNotFound), "nowhere",
		},
		"arguments that are wrong": {
			"run_command", map[string]any{"command": "true", "cwd": "/"}, outcome{Reason: "InvalidArguments", RetrySafe: ptr.To(true)}, "cwd: is unknown",
		},
	}
}

func with(o outcome, stderr string) outcome {
	o.Stderr = stderr
	return o
}

// check compares an answer with what should have come, and with the object that it tells of.
func (c *mcpCase) check(t *testing.T, sp *space, got mcpAnswer) {
	t.Helper()
	r := got.fields()
	if !strings.Contains(got.text(), c.text) || got.IsError != (c.want.Phase != v1alpha1.PhaseSucceeded) {
		t.Errorf("isError %t, text %q", got.IsError, got.text())
	}
	if !strings.HasPrefix(got.text(), strings.TrimRight(r.Output, "\n")) || r.Reason != c.want.Reason || got.IsError && r.RetrySafe == nil {
		t.Errorf("the text %q and the fields %+v differ", got.text(), r)
	}
	if c.want.Phase == "" {
		expectSame(t, "outcome", c.want, outcome{Reason: r.Reason, RetrySafe: r.RetrySafe})
		return
	}
	call := &v1alpha1.ToolCall{}
	must(t, sp.client.Get(t.Context(), client.ObjectKey{Namespace: sp.namespace, Name: r.Call}, call))
	expect(t, call, c.want)
	expectSame(t, "exit code", c.want.Exit, r.ExitCode)
	if !strings.HasPrefix(got.text(), strings.TrimRight(mcpreply.Of(call).Output, "\n")) || call.Spec.RequestedBy.Username != "system:serviceaccount:"+sp.namespace+":agent" {
		t.Errorf("the call is %s's and says %q, the answer %q", call.Spec.RequestedBy.Username, call.Status.Output, got.text())
	}
	checkFinished(t, call)
}

// checkListedTools looks at the tools as the client lists them.
func checkListedTools(t *testing.T, a *mcpAgent) {
	t.Helper()
	r := a.await(a.order("list", nil))
	var listed struct {
		Tools []struct {
			Name, Description string
			InputSchema       struct {
				Type       string
				Properties map[string]map[string]any
				Required   []string
			}
		}
	}
	must(t, json.Unmarshal(r.Result, &listed))
	got := map[string][]string{}
	for _, tool := range listed.Tools {
		got[tool.Name] = nil
		if tool.Description == "" || tool.InputSchema.Type != "object" {
			t.Errorf("tool %s: description %q, schemas %+v", tool.Name, tool.Description, tool)
		}
		for name, property := range tool.InputSchema.Properties {
			got[tool.Name] = append(got[tool.Name], name)
			if property["type"] == "" {
				t.Errorf("tool %s: argument %s has no type", tool.Name, name)
			}
		}
		slices.Sort(got[tool.Name])
	}
	common := []string{"session", "environment", "timeout_seconds", "working_dir", "env", "request_id"}
	want := map[string][]string{
		"run_command":       append([]string{"command", "stdin", "background", "collect", "network_hosts"}, common...),
		"run_program":       append([]string{"program", "args", "stdin", "background", "collect", "network_hosts"}, common...),
		"run_code":          append([]string{"language", "code", "network", "stdin", "background", "collect", "network_hosts"}, common...),
		"read_file":         append([]string{"path", "offset", "limit", "unit"}, common...),
		"write_file":        append([]string{"path", "content", "content_base64", "mode", "create_only", "if_sha256"}, common...),
		"edit_file":         append([]string{"path", "old_string", "new_string", "replace_all", "edits", "if_sha256"}, common...),
		"list_files":        append([]string{"path", "pattern", "recursive", "max_results", "respect_gitignore"}, common...),
		"search_files":      append([]string{"path", "pattern", "literal", "glob", "max_results", "context_lines", "respect_gitignore"}, common...),
		"list_environments": nil,
		"start_session":     {"environment", "working_dir", "env", "workspace", "idle_timeout_seconds", "max_lifetime_seconds", "timeout_seconds", "request_id"},
		"end_session":       {"session", "timeout_seconds"},
		"get_call":          {"call", "timeout_seconds"},
		"cancel_call":       {"call"},
		"read_output":       {"call", "stream", "offset", "limit", "artifact"},
	}
	for name := range want {
		slices.Sort(want[name])
	}
	expectSame(t, "tools and their arguments", want, got)
}

// Output arrives while the command runs, which goes on only when it was seen. A client may drop what comes right
// before the answer, which has it all.
func TestMCPProgressIsLive(t *testing.T) {
	t.Parallel()
	everyMCPClient(t, func(t *testing.T, sp *space, target func(string) mcpTarget) {
		a := startAgent(t, target(sp.newAccount(t, "agent", "bash")))
		a.connect()
		o := a.order("call", map[string]any{"tool": "run_command", "progress": true, "arguments": map[string]any{
			"command": "echo first; " + held + "; rm /tmp/go; echo second; " + held, "env": map[string]any{"WAY": "live"},
		}})
		call := sp.awaitPhase(t, sp.callWith(t, "live"), v1alpha1.PhaseRunning)
		for _, line := range []string{"first\n", "second\n"} {
			if got := a.awaitOutput(o); got != line {
				t.Errorf("the progress told %q, not %q", got, line)
			}
			sp.letGo(t, call)
		}
		if answer := a.answer(a.await(o)); answer.IsError {
			t.Fatal(answer.text())
		}
		close(o.progress)
		for p := range o.progress {
			if p.Message != "" {
				t.Errorf("the progress told %q, too", p.Message)
			}
		}
	})
}

// However an agent stops waiting, its command stops.
func TestMCPAnAgentThatStopsWaiting(t *testing.T) {
	t.Parallel()
	ways := map[string]func(a *mcpAgent, o *order){
		"it cancels":   func(a *mcpAgent, o *order) { a.order("cancel", map[string]any{"of": o.id}) },
		"it hangs up":  func(a *mcpAgent, _ *order) { a.order("close", nil) },
		"it is killed": func(a *mcpAgent, _ *order) { _ = a.cmd.Process.Kill() },
	}
	everyMCPClient(t, func(t *testing.T, sp *space, target func(string) mcpTarget) {
		token := sp.newAccount(t, "agent", "bash")
		for name, stop := range ways {
			t.Run(name, func(t *testing.T) {
				a := startAgent(t, target(token))
				a.connect()
				o := a.order("call", map[string]any{"tool": "run_command", "arguments": map[string]any{"command": "echo begun; sleep 300", "env": map[string]any{"WAY": name}}})
				call := sp.callWith(t, name)
				sp.awaitLine(t, call, "begun")
				stop(a, o)
				expect(t, sp.awaitFinished(t, call), outcome{
					Phase: v1alpha1.PhaseCancelled, Reason: v1alpha1.ReasonCancelRequested, Signal: "SIGTERM", Stdout: "begun\n", RetrySafe: ptr.To(false),
				})
			})
		}
	})
}

// callWith is the call whose variable WAY has the value.
func (sp *space) callWith(t *testing.T, way string) *v1alpha1.ToolCall {
	t.Helper()
	found := sp.await(t, "call", &v1alpha1.ToolCallList{}, func(o client.Object, gone bool) bool {
		call, ok := o.(*v1alpha1.ToolCall)
		return ok && !gone && len(call.Spec.Env) == 1 && call.Spec.Env[0].Value == way
	}, client.InNamespace(sp.namespace))
	return found.(*v1alpha1.ToolCall)
}
