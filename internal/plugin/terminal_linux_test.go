package plugin

import (
	"bytes"
	"strings"
	"testing"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// onTerminal runs a command in the namespace with both streams on a terminal.
func onTerminal(f *plugintest.Fixture, args ...string) (shown string, code int) {
	f.T.Helper()
	tty, display := plugintest.OpenTerminal(f.T)
	full := append([]string{"--kubeconfig", f.Kubeconfig, "-n", f.Namespace}, args...)
	code = plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: tty, ErrOut: tty}).Execute(full)
	return display(), code
}

const hostileText = "begin\x1b]0;title\x07\x1b[2J\rover\b\u009b31m\u202etxt\x7f\xff\r\nend\r"

const visibleText = "begin^[]0;title^G^[[2J^Mover^H<U+009B>31m<U+202E>txt^?"

// hostileCall is a finished call whose texts try to control a terminal.
func hostileCall(f *plugintest.Fixture, name string, phase v1alpha1.Phase, reason string) {
	f.T.Helper()
	f.Make(&v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: name},
		Spec:       v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: hostileText}},
	})
	// JSON has no invalid UTF-8: the API server stores the replacement character.
	stream := v1alpha1.StreamStatus{Bytes: int64(len(strings.ToValidUTF8(hostileText, "\ufffd")))}
	f.End(name, v1alpha1.ToolCallStatus{
		Phase: phase, Reason: reason, Message: hostileText, Stdout: hostileText, Stderr: hostileText, Output: hostileText,
		ExitCode: ptr.To(int32(1)), Streams: &v1alpha1.StreamsStatus{Stdout: stream, Stderr: stream},
		Action:      &v1alpha1.MappedAction{Type: v1alpha1.ActionShell, Tool: "bash", Summary: "\x1b[31m\u202e\u009b"},
		Environment: &v1alpha1.ResolvedEnvironment{Name: "tools", WorkingDir: hostileText, StrippedEnv: []string{hostileText}},
		Pod:         hostileText, Node: hostileText,
	})
}

// No text of a call, an environment or an error can control the terminal, whatever the command and the format.
func TestNothingControlsTheTerminal(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Policy()
	f.Environment("tools", true)
	f.Make(&v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "hostile"},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "example.com/\x1b[31m\u202e"},
	})
	hostileCall(f, "failed", v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit)
	hostileCall(f, "denied", v1alpha1.PhaseDenied, v1alpha1.ReasonBinaryNotAllowed)
	f.Session("dev")
	f.SetSession("dev", func(s *v1alpha1.ToolSession) {
		s.Status.Phase, s.Status.Reason, s.Status.Message = v1alpha1.SessionEnded, hostileText, hostileText
		s.Status.Environment = &v1alpha1.ResolvedEnvironment{Name: hostileText, WorkingDir: hostileText}
		s.Status.Pod, s.Status.Node = hostileText, hostileText
	})
	for _, line := range []string{
		"session list", "session list -o wide", "session list -o yaml", "session describe dev", "session describe \x1b[31m", "session suspend dev",
		"session exec dev -- ls", "session exec \x1b[31m -- ls", "session shell dev", "session end dev", "session start dev", "session start --\x1b[31m",
		"run --session dev -- ls", "check --session dev -- ls", "session start \x1b[31m", "session start --workspace \x1b[31m",
		"logs failed", "logs -f failed", "logs --stream stdout failed", "describe failed", "get", "get -A", "get -o wide", "get failed -o yaml", "get failed -o json",
		"get failed -o jsonpath={.status.stdout}{.status.message}", "get failed -o go-template={{.status.stderr}}", "get -o yaml",
		"wait failed denied", "explain-denial denied", "env list", "env list -o yaml", "run --name failed -- ls", "cancel failed \x1b[31m",
		"get \x1b[31mname\u202e", "logs \x1b[31mname", "get -l \x1b[31m", "get --phase \x1b[31m", "run --dry-run -o jsonpath={.spec.shell.command} --shell \x1b[31m",
		"run --detach --environment \x1b[31m -- ls", "check --environment \x1b[31m -- ls", "--context \x1b[31m get", "--\x1b[31m", "\x1b[31m", "run --help", "check --shell \x1b[31m",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			shown, _ := onTerminal(f, strings.Split(line, " ")...)
			for _, r := range strings.ReplaceAll(shown, "\r\n", "\n") {
				if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
					t.Fatalf("%U reaches the terminal: %q", r, shown)
				}
			}
			if shown == "" {
				t.Error("nothing is shown")
			}
		})
	}
}

func TestOutputOnATerminalIsVisible(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	hostileCall(f, "call", v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit)
	for _, line := range []string{"logs call", "describe call", "get call -o jsonpath={.status.stdout}"} {
		if shown, code := onTerminal(f, strings.Split(line, " ")...); code != 0 || !strings.Contains(shown, visibleText) || !strings.Contains(shown, "end^M") {
			t.Errorf("%s: exit code %d, %q", line, code, shown)
		}
	}
}

// A pipe gets every byte, and so does a terminal on request.
func TestOutputPassesUnchanged(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	hostileCall(f, "call", v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit)
	want := strings.ToValidUTF8(hostileText, "\ufffd")
	for _, line := range []string{"logs call", "get call -o jsonpath={.status.stdout}"} {
		if got := f.Run(strings.Split(line, " ")...); !strings.Contains(got.Out, want) {
			t.Errorf("%s into a pipe: %q", line, got.Out)
		}
		if shown, _ := onTerminal(f, strings.Split(line+" --raw", " ")...); !strings.Contains(shown, want) {
			t.Errorf("%s --raw on a terminal: %q", line, shown)
		}
	}
	indented := "  " + strings.ReplaceAll(want, "\n", "\n  ")
	if got := f.Run("describe", "call"); !strings.Contains(got.Out, indented) {
		t.Errorf("describe into a pipe: %q", got.Out)
	}
	if shown, _ := onTerminal(f, "describe", "call", "--raw"); !strings.Contains(shown, indented) {
		t.Errorf("describe --raw on a terminal: %q", shown)
	}
}

// Only the stream that leads to a terminal is filtered.
func TestEachStreamIsFilteredByItself(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	hostileCall(f, "call", v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit)
	want := strings.ToValidUTF8(hostileText, "\ufffd")
	args := []string{"--kubeconfig", f.Kubeconfig, "-n", f.Namespace, "logs", "call"}
	for _, outOnTerminal := range []bool{true, false} {
		tty, display := plugintest.OpenTerminal(t)
		var pipe bytes.Buffer
		streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: tty, ErrOut: &pipe}
		if !outOnTerminal {
			streams.Out, streams.ErrOut = &pipe, tty
		}
		code := plugintest.TestCLI(streams).Execute(args)
		if shown := display(); code != 0 || pipe.String() != want || !strings.Contains(shown, visibleText) {
			t.Errorf("standard output on a terminal: %t; exit code %d, %q in the pipe, %q on the terminal", outOnTerminal, code, pipe.String(), shown)
		}
	}
}
