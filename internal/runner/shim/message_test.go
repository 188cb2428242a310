package shim

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/spec"
)

// A key of the embedded command that only differs in case would be sent beside that of the message, and could be read in its place.
func TestEachPartOfACommandIsSentOnce(t *testing.T) {
	t.Parallel()
	cmd := runner.Command{
		Argv: []string{"sh", "-c", "\xff"}, Env: []string{"A=secret"}, Dir: "/", DirFD: os.Stdin, Input: os.Stdin, Stdin: []byte("in"),
		Bounds: spec.Bounds{TimeoutMilliseconds: 1, MaxBytesPerStream: 2, KeepBytesPerStream: 3, DenyNetwork: true}, Grace: 4, Stdout: os.Stdout,
		Network: &runner.Network{},
	}
	raw, err := json.Marshal(newCommand(&cmd))
	if err != nil {
		t.Fatal(err)
	}
	sent, seen := map[string]json.RawMessage{}, map[string]bool{}
	if err := json.Unmarshal(raw, &sent); err != nil {
		t.Fatal(err)
	}
	for key := range sent {
		if seen[strings.ToLower(key)] {
			t.Errorf("%s is sent twice", key)
		}
		seen[strings.ToLower(key)] = true
	}
	if strings.Contains(string(raw), "secret") {
		t.Error("a variable is sent as text")
	}
	var received command
	if err := json.Unmarshal(raw, &received); err != nil {
		t.Fatal(err)
	}
	got := received.command()
	if got.Bounds != cmd.Bounds || got.Grace != cmd.Grace || got.Network == nil || strings.Join(got.Argv, " ") != strings.Join(cmd.Argv, " ") || got.DirFD != nil {
		t.Errorf("received is %+v", got)
	}
}
