package e2e

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/built"
	"toolcall.dev/operator/internal/testing/full"
)

// ownServer starts a server over HTTP, for a user's namespace, at a port of this machine.
func ownServer(t *testing.T, local *mcpStdio, address string) *exec.Cmd {
	t.Helper()
	server := exec.CommandContext(t.Context(), local.Command, append([]string{"http", "--address", address, "--health-address", "127.0.0.1:0", "--pass-tokens"}, local.Args[1:]...)...)
	server.Stderr = os.Stderr
	must(t, server.Start())
	return server
}

// stop ends a server without a word.
func stop(t *testing.T, server *exec.Cmd) {
	t.Helper()
	must(t, server.Process.Kill())
	_ = server.Wait()
}

// A task outlives the server that made it: another one has its end.
func TestMCPATaskOutlivesItsServer(t *testing.T) {
	full.Only(t, "a call of five minutes")
	t.Parallel()
	sp := newSpace(t)
	token := sp.newAccount(t, "agent", "bash")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	local := sp.overStdio(t, "v2", token).Stdio
	first := ownServer(t, local, address)
	setup, err := json.Marshal(map[string]any{
		"url": "http://" + address + "/mcp", "token": token, "tool": "run_command",
		"arguments": map[string]any{"command": "echo begun; sleep 300; echo done", "timeout_seconds": 600},
	})
	must(t, err)
	agent := exec.CommandContext(t.Context(), "node", "tasks.mjs")
	agent.Dir, agent.Env, agent.Stderr = clientFolder(t, "mcp", filepath.Join("mcp", "tasks.mjs")), append(os.Environ(), "MCP_TEST="+string(setup)), os.Stderr
	stdout, err := agent.StdoutPipe()
	must(t, err)
	must(t, agent.Start())
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), `{"task":`) {
		t.Fatalf("the client says %q instead of a task's id", lines.Text())
	}
	stop(t, first)
	second := ownServer(t, local, address)
	defer stop(t, second)
	if !lines.Scan() || !strings.Contains(lines.Text(), `begun\ndone\n`) {
		t.Errorf("the result is %q", lines.Text())
	}
	must(t, agent.Wait())
	list := &v1alpha1.ToolCallList{}
	must(t, sp.client.List(t.Context(), list, client.InNamespace(sp.namespace)))
	if len(list.Items) != 1 {
		t.Errorf("there are %d calls", len(list.Items))
	}
}

// The Inspector's command line lists the tools and calls one.
func TestMCPInspector(t *testing.T) {
	full.Only(t, "the Inspector is large")
	t.Parallel()
	modules, err := built.NodeModules("conformance")
	must(t, err)
	node, err := filepath.Glob(filepath.Join(modules, "node-linux-*", "bin", "node"))
	if err != nil || len(node) != 1 {
		t.Fatalf("Node.js is %q, %v", node, err)
	}
	sp := newSpace(t)
	local := sp.overStdio(t, "v2", sp.newAccount(t, "agent", "bash")).Stdio
	for want, ask := range map[string][]string{
		`"name": "run_command"`: {"--method", "tools/list"},
		`hello\n`:               {"--method", "tools/call", "--tool-name", "run_command", "--tool-arg", "command=echo hello"},
	} {
		arguments := append([]string{filepath.Join(modules, "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js"), "--cli", local.Command}, local.Args...)
		out, err := exec.CommandContext(t.Context(), node[0], append(arguments, ask...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v\n%s", ask, err, out)
		}
	}
}
