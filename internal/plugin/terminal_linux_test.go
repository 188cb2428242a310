package plugin

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// openTerminal opens a pseudo-terminal that doesn't change bytes. display returns what it has shown; call it once.
func openTerminal(t *testing.T) (tty *os.File, display func() string) {
	t.Helper()
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { controller.Close() })
	fd := int(controller.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := term.MakeRaw(int(tty.Fd())); err != nil {
		t.Fatal(err)
	}
	shown := make(chan string, 1)
	go func() {
		// The read fails once the terminal is closed and everything was read.
		text, _ := io.ReadAll(controller)
		shown <- string(text)
	}()
	return tty, func() string { tty.Close(); return <-shown }
}

// onTerminal runs a command in the namespace with both streams on a terminal.
func (f *fixture) onTerminal(args ...string) (shown string, code int) {
	f.t.Helper()
	tty, display := openTerminal(f.t)
	full := append([]string{"--kubeconfig", f.kubeconfig, "-n", f.namespace}, args...)
	code = newCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: tty, ErrOut: tty}).execute(full)
	return display(), code
}

const hostileText = "begin\x1b]0;title\x07\x1b[2J\rover\b\u009b31m\u202etxt\x7f\xff\r\nend\r"

const visibleText = "begin^[]0;title^G^[[2J^Mover^H<U+009B>31m<U+202E>txt^?"

// hostileCall is a finished call whose texts try to control a terminal.
func (f *fixture) hostileCall(name string, phase v1alpha1.Phase, reason string) {
	f.t.Helper()
	f.make(&v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
		Spec:       v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: hostileText}},
	})
	// JSON has no invalid UTF-8: the API server stores the replacement character.
	stream := v1alpha1.StreamStatus{Bytes: int64(len(strings.ToValidUTF8(hostileText, "\ufffd")))}
	f.end(name, v1alpha1.ToolCallStatus{
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
	f := newFixture(t)
	f.policy()
	f.environment("tools", true)
	f.make(&v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "hostile"},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "example.com/\x1b[31m\u202e"},
	})
	f.hostileCall("failed", v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit)
	f.hostileCall("denied", v1alpha1.PhaseDenied, v1alpha1.ReasonBinaryNotAllowed)
	f.session("dev")
	f.setSession("dev", func(s *v1alpha1.ToolSession) {
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
			shown, _ := f.onTerminal(strings.Split(line, " ")...)
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
	f := newFixture(t)
	f.hostileCall("call", v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit)
	for _, line := range []string{"logs call", "describe call", "get call -o jsonpath={.status.stdout}"} {
		if shown, code := f.onTerminal(strings.Split(line, " ")...); code != 0 || !strings.Contains(shown, visibleText) || !strings.Contains(shown, "end^M") {
			t.Errorf("%s: exit code %d, %q", line, code, shown)
		}
	}
}

// A pipe gets every byte, and so does a terminal on request.
func TestOutputPassesUnchanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.hostileCall("call", v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit)
	want := strings.ToValidUTF8(hostileText, "\ufffd")
	for _, line := range []string{"logs call", "get call -o jsonpath={.status.stdout}"} {
		if got := f.run(strings.Split(line, " ")...); !strings.Contains(got.out, want) {
			t.Errorf("%s into a pipe: %q", line, got.out)
		}
		if shown, _ := f.onTerminal(strings.Split(line+" --raw", " ")...); !strings.Contains(shown, want) {
			t.Errorf("%s --raw on a terminal: %q", line, shown)
		}
	}
	indented := "  " + strings.ReplaceAll(want, "\n", "\n  ")
	if got := f.run("describe", "call"); !strings.Contains(got.out, indented) {
		t.Errorf("describe into a pipe: %q", got.out)
	}
	if shown, _ := f.onTerminal("describe", "call", "--raw"); !strings.Contains(shown, indented) {
		t.Errorf("describe --raw on a terminal: %q", shown)
	}
}

// Only the stream that leads to a terminal is filtered.
func TestEachStreamIsFilteredByItself(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.hostileCall("call", v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit)
	want := strings.ToValidUTF8(hostileText, "\ufffd")
	args := []string{"--kubeconfig", f.kubeconfig, "-n", f.namespace, "logs", "call"}
	for _, outOnTerminal := range []bool{true, false} {
		tty, display := openTerminal(t)
		var pipe bytes.Buffer
		streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: tty, ErrOut: &pipe}
		if !outOnTerminal {
			streams.Out, streams.ErrOut = &pipe, tty
		}
		code := newCLI(streams).execute(args)
		if shown := display(); code != 0 || pipe.String() != want || !strings.Contains(shown, visibleText) {
			t.Errorf("standard output on a terminal: %t; exit code %d, %q in the pipe, %q on the terminal", outOnTerminal, code, pipe.String(), shown)
		}
	}
}

// With both streams on one terminal, live output needs no order between the streams.
func TestOneTerminalIsOneDestination(t *testing.T) {
	t.Parallel()
	tty, display := openTerminal(t)
	defer display()
	c := newCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: tty, ErrOut: tty})
	if shown := (&outputFlags{live: liveAlways}).display(c); !shown.mixed {
		t.Error("the streams are kept separate")
	}
}
