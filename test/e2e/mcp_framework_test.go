package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/testing/full"
)

// An agent of another project's framework finds and corrects a mistake in a program, with nothing but the tools that its MCP client offers.
func TestMCPAFrameworkDoesATask(t *testing.T) {
	full.Only(t, "the framework has many packages")
	t.Parallel()
	sp := newSpace(t)
	setup, err := json.Marshal(sp.overStdio(t, "", sp.newAccount(t, "agent", "bash", "file.read", "file.write")).Stdio)
	must(t, err)
	cmd := exec.CommandContext(t.Context(), "node", "agent.mjs")
	cmd.Dir = clientFolder(t, "mcp-agents", filepath.Join("mcp", "agents", "agent.mjs"))
	cmd.Env = append(os.Environ(), "MCP_TEST="+string(setup))
	stderr := &strings.Builder{}
	cmd.Stderr = stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, clip(stderr.String(), 4000))
	}
	var did struct {
		Answers []struct{ Tool, Text string }
		Last    string
	}
	must(t, json.Unmarshal(out, &did))
	want := []struct{ tool, text string }{
		{"start_session", "Session mcp-"}, {"write_file", "Wrote 78 bytes to /workspace/mean.py"}, {"run_command", "NameError: name 'value' is not defined"},
		{"edit_file", "The old_string was found 0 times"}, {"edit_file", "Edited /workspace/mean.py"}, {"run_command", "3.0\n"},
		{"list_files", "mean.py 79\n"}, {"end_session", "has ended."},
	}
	if len(did.Answers) != len(want) || did.Last != "done" {
		t.Fatalf("%+v", did)
	}
	for i, answer := range did.Answers {
		// The model reads the text of the server, and not JSON around it.
		if answer.Tool != want[i].tool || !strings.Contains(answer.Text, want[i].text) || strings.HasPrefix(answer.Text, "{") {
			t.Errorf("%d: %s: %s", i, answer.Tool, answer.Text)
		}
	}
}
