package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// An agent works on files in a session: what one tool writes, the others find, with commands and without.
func TestMCPFilesInASession(t *testing.T) {
	t.Parallel()
	everyMCPClient(t, func(t *testing.T, sp *space, target func(string) mcpTarget) {
		a := startAgent(t, target(sp.newAccount(t, "agent", "bash", "file.read", "file.write")))
		a.connect()
		sp.awaitReady(t, defaultEnv, metav1.ConditionTrue, v1alpha1.ReasonReady)
		session := a.succeed("start_session", nil).fields().Session
		in := func(arguments map[string]any) map[string]any {
			arguments["session"], arguments["working_dir"] = session, "/tmp"
			return arguments
		}
		a.succeed("write_file", in(map[string]any{"path": "src/a.txt", "content": "one\ntwo\nthree\n"}))
		read := a.succeed("read_file", in(map[string]any{"path": "src/a.txt", "offset": 2, "limit": 1}))
		if r := read.fields(); !strings.HasPrefix(r.Output, "two") || r.File == nil || r.File.NextOffset == nil || *r.File.NextOffset != 3 || !strings.Contains(read.text(), "next_offset: 3") {
			t.Errorf("a line: %q, %+v", read.text(), r.File)
		}
		whole := a.succeed("read_file", in(map[string]any{"path": "src/a.txt"})).fields()
		a.succeed("edit_file", in(map[string]any{"path": "src/a.txt", "old_string": "two", "new_string": "zwei", "if_sha256": whole.File.SHA256}))
		stale := a.use("edit_file", in(map[string]any{"path": "src/a.txt", "old_string": "one", "new_string": "eins", "if_sha256": whole.File.SHA256}))
		if !stale.IsError || stale.fields().Reason != v1alpha1.ReasonFileChanged {
			t.Errorf("an edit of what has changed: %+v", stale)
		}
		if got := a.succeed("run_command", in(map[string]any{"command": "cat src/a.txt"})); !strings.HasPrefix(got.text(), "one\nzwei\nthree\n") {
			t.Errorf("a command finds %q", got.text())
		}
		if got := a.succeed("list_files", in(map[string]any{"pattern": "**/*.txt"})).fields().Output; !strings.Contains(got, "src/a.txt") {
			t.Errorf("the list: %s", got)
		}
		if got := a.succeed("search_files", in(map[string]any{"path": "src", "pattern": "^z"})).fields().Output; !strings.Contains(got, ":zwei") {
			t.Errorf("the search: %s", got)
		}
		if got := a.use("read_file", map[string]any{"path": "/tmp/src/a.txt"}); !got.IsError || got.fields().Reason != v1alpha1.ReasonFileNotFound {
			t.Errorf("without the session: %+v", got)
		}
		a.succeed("end_session", map[string]any{"session": session})
		if got := a.use("read_file", in(map[string]any{"path": "src/a.txt"})); !got.IsError || got.fields().Reason != v1alpha1.ReasonSessionEnded {
			t.Errorf("after the session's end: %+v", got)
		}
	})
}

// succeed calls a tool, which succeeds.
func (a *mcpAgent) succeed(tool string, arguments map[string]any) mcpAnswer {
	a.t.Helper()
	got := a.use(tool, arguments)
	if got.IsError {
		a.t.Fatalf("%s: %s", tool, got.text())
	}
	return got
}

// What a status leaves out is read in parts, to the last byte.
func TestMCPOutputIsReadInParts(t *testing.T) {
	t.Parallel()
	everyMCPClient(t, func(t *testing.T, sp *space, target func(string) mcpTarget) {
		a := startAgent(t, target(sp.newAccount(t, "agent", "bash")))
		a.connect()
		var want strings.Builder
		for i := range 30000 {
			fmt.Fprintf(&want, "%d\n", i+1)
		}
		ran := a.succeed("run_command", map[string]any{"command": "seq 30000"})
		if !strings.Contains(ran.text(), "truncated: true") {
			t.Errorf("the answer doesn't say that it is shortened: %s", clip(ran.text(), 300))
		}
		var got strings.Builder
		for offset, complete := int64(0), false; !complete && got.Len() < want.Len(); {
			part := a.succeed("read_output", map[string]any{"call": ran.fields().Call, "offset": offset, "limit": 65536}).fields()
			got.WriteString(part.Output)
			offset, complete = part.Stream.NextOffset, part.Stream.Complete
		}
		if got.String() != want.String() {
			t.Errorf("%d bytes, not the %d that were written", got.Len(), want.Len())
		}
	})
}

// A request that is repeated, by one agent or by two at once, runs one command.
func TestMCPRequestIDs(t *testing.T) {
	t.Parallel()
	everyMCPClient(t, func(t *testing.T, sp *space, target func(string) mcpTarget) {
		token := sp.newAccount(t, "agent", "bash")
		agents := []*mcpAgent{startAgent(t, target(token)), startAgent(t, target(token))}
		for _, a := range agents {
			a.connect()
		}
		arguments := map[string]any{"command": "cat /proc/sys/kernel/random/uuid", "request_id": "once"}
		answers := make([]mcpAnswer, 6)
		var running sync.WaitGroup
		for i := range answers {
			o := agents[i%2].order("call", map[string]any{"tool": "run_command", "arguments": arguments})
			running.Go(func() { answers[i] = agents[i%2].answer(agents[i%2].await(o)) })
		}
		running.Wait()
		for _, got := range answers {
			if got.IsError || got.text() != answers[0].text() {
				t.Errorf("%q and %q", got.text(), answers[0].text())
			}
		}
		calls := &v1alpha1.ToolCallList{}
		must(t, sp.client.List(t.Context(), calls, client.InNamespace(sp.namespace)))
		if len(calls.Items) != 1 {
			t.Errorf("%d calls", len(calls.Items))
		}
		arguments["command"] = "true"
		if got := agents[0].use("run_command", arguments); !got.IsError || got.fields().Reason != "RequestIDConflict" {
			t.Errorf("with other arguments: %+v", got)
		}
	})
}

// With a session for the client, files stay for the conversation, whose end ends the session.
func TestMCPASessionPerClient(t *testing.T) {
	t.Parallel()
	for _, sdk := range []string{"v1", "v2"} {
		t.Run("SDK "+sdk, func(t *testing.T) {
			t.Parallel()
			sp := newSpace(t)
			target := sp.overStdio(t, sdk, sp.newAccount(t, "agent", "bash", "file.read"))
			target.Stdio.Args = append(target.Stdio.Args, "--session-per-client")
			a := startAgent(t, target)
			a.connect()
			first := a.succeed("run_command", map[string]any{"command": "echo pear > /tmp/fruit"})
			if got := a.succeed("read_file", map[string]any{"path": "/tmp/fruit"}); !strings.HasPrefix(got.text(), "pear") || got.fields().Session != first.fields().Session {
				t.Errorf("%+v", got)
			}
			a.await(a.order("close", nil))
			sp.await(t, "end of the session", &v1alpha1.ToolSessionList{}, func(o client.Object, gone bool) bool {
				session, ok := o.(*v1alpha1.ToolSession)
				return ok && !gone && session.Name == first.fields().Session && session.Status.Phase == v1alpha1.SessionEnded
			}, client.InNamespace(sp.namespace))
		})
	}
}
