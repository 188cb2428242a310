package dist_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// checkVersion asks the programs in the images of this machine's architecture.
func checkVersion(t *testing.T, dir string) {
	for name, want := range map[string]string{"manager": "manager v9.8.7 (commit 0123456789ab, ", "mcp": "mcp version v9.8.7\n"} {
		program := programOf(t, filepath.Join(dir, "images", name), runtime.GOARCH)
		output, err := exec.Command(program, "--version").CombinedOutput()
		if err != nil || !strings.HasPrefix(string(output), want) {
			t.Errorf("%s: %s, %v", name, output, err)
		}
		if name == "mcp" {
			checkServerInfo(t, program, "v9.8.7")
		}
	}
}

// checkServerInfo asks an MCP server for its version, as a client does. No cluster is needed for that.
func checkServerInfo(t *testing.T, program, version string) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	const cluster = `{apiVersion: v1, kind: Config, current-context: x, clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}], contexts: [{name: x, context: {cluster: c}}]}`
	if err := os.WriteFile(kubeconfig, []byte(cluster), 0o600); err != nil {
		t.Fatal(err)
	}
	server := exec.Command(program, "stdio", "--kubeconfig", kubeconfig)
	stdin, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	if _, err := io.WriteString(stdin, initialize+"\n"); err != nil {
		t.Error(err)
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	var answer struct {
		Result struct {
			ServerInfo struct{ Name, Version string }
		}
	}
	if err := errors.Join(err, json.Unmarshal(line, &answer)); err != nil || answer.Result.ServerInfo.Name != "toolcall" || answer.Result.ServerInfo.Version != version {
		t.Errorf("the MCP server answers %s, %v", line, err)
	}
	if err := errors.Join(stdin.Close(), server.Wait()); err != nil {
		t.Errorf("the MCP server ended with: %v", err)
	}
}
