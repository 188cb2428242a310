package e2e

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// What a model reads is often all that it sees.
func TestTheTextForAModel(t *testing.T) {
	sessionFirst(t, testTheTextForAModel, wayCold, wayWarm, wayImage)
}

func testTheTextForAModel(t *testing.T, w way) {
	sp := w.newSpace(t, listed("bash", "find", "seq", "sleep"))
	for name, test := range map[string]struct {
		spec v1alpha1.ToolCallSpec
		want string
	}{
		"the order of two streams": {shell("echo 1; sleep 0.1; echo 2 >&2; sleep 0.1; echo 3"), "1\n2\n3\n\n"},
		"a progress bar and colors": {
			shell(`for i in $(seq 1 300); do printf '\r%3d%%' $i; done; printf '\n\033[31mFAIL\033[0m t1\n'`), "300%\nFAIL t1\n\n",
		},
		"the time limit":           {within(2, shell("echo part; sleep 20")), "part\n\nThe command was stopped at its limit of 2 s.\n\n"},
		"a signal":                 {shell("echo part; kill -SEGV $$"), "part\n\nThe command was ended by SIGSEGV.\n\n"},
		"an exit code":             {shell("exit 3"), "(no output)\n\nCommand exited with code 3\n\n"},
		"refused, and exit code 0": {shell(`x=i; ${x}d 2>/dev/null; true`), "(no output)\n\n" + `"/usr/bin/id" was not allowed to run: add it to binaries.allowed of policy `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := sp.run(t, test.spec)
			if text, isThere := strings.CutPrefix(call.Status.Output, test.want); !isThere || !strings.Contains("\n\n"+text, "\n\nTook ") {
				t.Errorf("the text is %q", call.Status.Output)
			}
		})
	}
}

// What a snippet prints can be read at once, and is there when the time limit stops it.
func TestWhatWasPrintedBeforeTheLimitIsThere(t *testing.T) {
	sessionFirst(t, testWhatWasPrintedBeforeTheLimitIsThere, wayCold, wayWarm, wayImage)
}

func testWhatWasPrintedBeforeTheLimitIsThere(t *testing.T, w way) {
	sp := w.newSpace(t)
	call := sp.create(t, within(15, code("python", "import time\nprint('step 1')\ntime.sleep(600)")))
	sp.awaitLine(t, call, "step 1")
	now := &v1alpha1.ToolCall{}
	must(t, sp.client.Get(t.Context(), client.ObjectKeyFromObject(call), now))
	if now.Status.Phase.Terminal() {
		t.Errorf("it was read only when the call was %s", now.Status.Phase)
	}
	expect(t, sp.awaitFinished(t, call), stopped(v1alpha1.ReasonTimedOut, "SIGTERM", "step 1\n"))
}
