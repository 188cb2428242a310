package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestStreamsAreSeparate(t *testing.T) {
	everyWay(t, testStreamsAreSeparate)
}

func testStreamsAreSeparate(t *testing.T, w way) {
	sp := w.newSpace(t)
	call := sp.run(t, shell("echo out; echo err >&2; printf 'no newline'; printf 'none here' >&2"))
	want := succeeded("out\nno newline")
	want.Stderr = "err\nnone here"
	expect(t, call, want)
	if call.Status.Timings.Path == "" || call.Status.Action == nil || call.Status.Action.Type != v1alpha1.ActionShell || call.Status.Action.Tool != "bash" {
		t.Errorf("timings.path or action is missing: %+v, %+v", call.Status.Timings, call.Status.Action)
	}
}

func TestExitCodes(t *testing.T) {
	everyWay(t, testExitCodes)
}

func testExitCodes(t *testing.T, w way) {
	sp := w.newSpace(t, metacharactersAllowed)
	for name, test := range map[string]struct {
		spec v1alpha1.ToolCallSpec
		want outcome
	}{
		"success without output": {structured("true"), succeeded("")},
		"one":                    {structured("false"), exited(1, "", "")},
		"forty-two, with output": {shell("echo so far; exit 42"), exited(42, "so far\n", "")},
		"255":                    {shell("exit 255"), exited(255, "", "")},
		"127 of a program that was found and ran": {
			structured("python3", "-c", "import sys\nsys.exit(127)"), exited(127, "", ""),
		},
		"127 of a shell that found no such command": {
			shell("no-such-command-anywhere"), exited(127, "", "bash: line 1: no-such-command-anywhere: command not found\n"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, sp.run(t, test.spec), test.want)
		})
	}
}

func TestSignals(t *testing.T) {
	everyWay(t, testSignals)
}

func testSignals(t *testing.T, w way) {
	sp := w.newSpace(t)
	for signal, want := range map[string]outcome{
		"TERM": stopped(v1alpha1.ReasonSignaled, "SIGTERM", "before\n"),
		"KILL": stopped(v1alpha1.ReasonSignaled, "SIGKILL", "before\n"),
		"SEGV": stopped(v1alpha1.ReasonSignaled, "SIGSEGV", "before\n"),
	} {
		t.Run(signal, func(t *testing.T) {
			t.Parallel()
			call := sp.run(t, shell("echo before; kill -"+signal+" $$; echo after"))
			expect(t, call, want)
			expectMessage(t, call, "SIG"+signal)
		})
	}
}

func TestOutOfMemory(t *testing.T) {
	everyWay(t, testOutOfMemory)
}

func testOutOfMemory(t *testing.T, w way) {
	sp := w.newSpace(t)
	sp.newEnvironment(t, "small", func(e *v1alpha1.ExecutionEnvironment) {
		e.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	})
	call := sp.run(t, in("small", code("python", "print('start', flush=True)\nx = bytearray(512 << 20)\nprint('end')")))
	stdout := "start\n"
	// With version 2, the kernel may kill the runner with the command, and the output goes with it: docs/troubleshooting.md, OOMKilled.
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil && call.Status.Stdout == "" {
		stdout = ""
	}
	expect(t, call, stopped(v1alpha1.ReasonOOMKilled, "SIGKILL", stdout))
	expectMessage(t, call, "memory")
}

func TestCommandThatDoesNotExist(t *testing.T) {
	coldFirst(t, testCommandThatDoesNotExist, waySession, wayWarm, wayImage)
}

func testCommandThatDoesNotExist(t *testing.T, w way) {
	sp := w.newSpace(t)
	call := sp.run(t, structured("no-such-program", "--help"))
	expect(t, call, neverRan(v1alpha1.ReasonCommandNotFound))
	expectMessage(t, call, `"no-such-program" was not found in PATH (/usr/local/bin:/usr/bin:/bin)`)
	if call.Status.StartTime != nil || call.Status.DurationMilliseconds != nil || call.Status.Streams != nil {
		t.Errorf("nothing ran, but there are times or streams: %+v", call.Status)
	}
}

// Arguments reach the program as they are: no shell, no splitting, no expansion.
func TestArgumentsAreExact(t *testing.T) {
	sessionFirst(t, testArgumentsAreExact, wayCold, wayWarm, wayImage)
}

func testArgumentsAreExact(t *testing.T, w way) {
	sp := w.newSpace(t, metacharactersAllowed)
	args := []string{
		"two words", "", " ", "tab\there", "line\nbreak\r\n", `"double" 'single' back\slash`,
		"$HOME `id` $(id) ${PATH}", "*?[a-z]{b,c}~", "| & ; < > ( )", "-rf", "--", "grüße 日本語 🙂 \u202e", "%s%n\\n", "#!", "=x",
	}
	call := sp.run(t, structured("python3", append([]string{"-c", "import json,sys\njson.dump(sys.argv[1:],sys.stdout)"}, args...)...))
	if call.Status.Reason != v1alpha1.ReasonCompleted {
		t.Fatalf("the call failed: %s: %s %s", call.Status.Reason, call.Status.Message, call.Status.Stderr)
	}
	var got []string
	must(t, json.Unmarshal([]byte(call.Status.Stdout), &got))
	if diff := cmp.Diff(args, got); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

func TestStandardInput(t *testing.T) {
	everyWay(t, testStandardInput)
}

func testStandardInput(t *testing.T, w way) {
	sp := w.newSpace(t)
	large := strings.Repeat("0123456789abcdef", 300<<10/16)
	control := "a\x00b\x01\x7f\r\n\tümläut 日本 🙂 \u2028\uFFFD end without newline"
	hash := structured("sha256sum")
	for name, test := range map[string]struct {
		spec  v1alpha1.ToolCallSpec
		stdin string
		want  outcome
	}{
		"is what cat gives back":              {structured("cat"), "one\ntwo\n", succeeded("one\ntwo\n")},
		"keeps control and wide characters":   {structured("cat"), control, succeeded(control)},
		"is empty when there is none":         {structured("wc", "-c"), "", succeeded("0\n")},
		"of 300 KiB arrives whole":            {hash, large, succeeded(sum(large) + "  -\n")},
		"is no obstacle when nobody reads it": {shell("exec <&-; echo done"), large, succeeded("done\n")},
		"may be read in part":                 {structured("head", "-c", "5"), large, succeeded("01234")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := *test.spec.DeepCopy()
			spec.Stdin = test.stdin
			expect(t, sp.run(t, spec), test.want)
		})
	}
}

func TestCallsDoNotSeeEachOthersFiles(t *testing.T) {
	coldFirst(t, testCallsDoNotSeeEachOthersFiles, wayWarm, wayImage)
}

func testCallsDoNotSeeEachOthersFiles(t *testing.T, w way) {
	sp := w.newSpace(t)
	// Each writes where the other would see it, and looks when the other has written too.
	write := func(name string) string {
		return "touch /workspace/" + name + " /tmp/" + name + "; echo ready; " + held + "; ls /workspace /tmp"
	}
	a, b := sp.create(t, shell(write("a"))), sp.create(t, shell(write("b")))
	a, b = sp.awaitLine(t, a, "ready"), sp.awaitLine(t, b, "ready")
	for name, call := range map[string]*v1alpha1.ToolCall{"a": a, "b": b} {
		sp.letGo(t, call)
		expect(t, sp.awaitFinished(t, call), succeeded("ready\n/tmp:\n"+name+"\ngo\n\n/workspace:\n"+name+"\n"))
	}
}

// A model's tool call, as it was emitted, becomes one of the other three.
func TestToolCallsAsModelsEmitThem(t *testing.T) {
	sessionFirst(t, testToolCallsAsModelsEmitThem, wayCold)
}

func testToolCallsAsModelsEmitThem(t *testing.T, w way) {
	sp := w.newSpace(t)
	for name, test := range map[string]struct {
		tool, arguments string
		want            outcome
		action          v1alpha1.ActionType
	}{
		"a shell line":          {"Bash", `{"cmd":"echo $((6*7))"}`, succeeded("42\n"), v1alpha1.ActionShell},
		"a program":             {"exec", `{"mode":"structured","binary":"printf","args":["%s-","a b","c"]}`, succeeded("a b-c-"), v1alpha1.ActionStructured},
		"Python":                {"jupyter", `{"code":"print(6*7)"}`, succeeded("42\n"), v1alpha1.ActionCode},
		"an unknown tool":       {"browser", `{}`, denied(v1alpha1.ReasonUnknownTool), ""},
		"a wrong type":          {"bash", `{"command":1}`, denied(v1alpha1.ReasonInvalidArguments), ""},
		"a limit in its fields": {"bash", `{"command":"sleep 60","timeout":1}`, stopped(v1alpha1.ReasonTimedOut, "SIGTERM", ""), v1alpha1.ActionShell},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := sp.run(t, tool(test.tool, test.arguments))
			expect(t, call, test.want)
			if test.action != "" && (call.Status.Action == nil || call.Status.Action.Type != test.action) {
				t.Errorf("action is %+v, not %s", call.Status.Action, test.action)
			}
		})
	}
}
