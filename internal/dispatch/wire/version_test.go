package wire_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
)

// recorded is a frame's body, or a termination message, that a runner of an older version wrote.
func recorded(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "version1", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestMessagesOfVersion1AreRead(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	hello := wire.Hello{Version: 1, Namespace: "ns", Call: "call", Job: "job", JobUID: "job-uid", Pod: "pod", PodUID: "pod-uid", Node: "node", Token: "TOKEN"}
	withCall := hello
	withCall.CallUID = "call-uid"
	for name, want := range map[string]*wire.Message{
		"hello-waiting":   {Hello: &hello},
		"hello-with-call": {Hello: &withCall},
		"ping":            {Ping: &wire.Ping{}},
		"result": {Result: &wire.Result{
			CallUID: "call-uid",
			Outcome: result.Outcome{
				Reason: result.NonZeroExit, Message: "The command exited with code 3.", Started: true, ExitCode: result.Exit(3),
				StartTime: at, CompletionTime: at.Add(1500 * time.Millisecond), DurationMS: 1500, WorkingDir: "/workspace",
				Stdout: result.Stream{Head: []byte("hello\n"), Bytes: 6, SHA256: "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"},
				Stderr: result.Stream{SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
			},
			Environment: wire.Environment{
				WorkingDir: "/workspace", Vars: []envresolve.ResolvedVar{{Name: "HOME", Source: envresolve.SourceImage}}, Stripped: []string{"LD_PRELOAD"},
			},
		}},
	} {
		got, err := readFromRunner(frame(recorded(t, name)), wire.MaxResultOf(1))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if got.Result != nil && got.Result.Validate() != nil {
			t.Errorf("%s: %v", name, got.Result.Validate())
		}
	}
}

func TestMaxResultOfAVersion(t *testing.T) {
	t.Parallel()
	if wire.MaxResultOf(wire.Version) != wire.MaxResult {
		t.Error("this version's bound isn't MaxResult")
	}
	// Two streams of 512 KiB in base64, and a message of 32 KiB of control characters.
	if least := 2*(512<<10)/3*4 + 6*(32<<10); wire.MaxResultOf(1) < least {
		t.Errorf("version 1 could send %d bytes; the bound is %d", least, wire.MaxResultOf(1))
	}
}
