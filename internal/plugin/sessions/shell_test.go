package sessions

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// shellOf runs a shell with the given input.
func shellOf(f *plugintest.Fixture, input string, args ...string) plugintest.Printed {
	f.T.Helper()
	out, errs, code := plugintest.Run(input, append([]string{"--kubeconfig", f.Kubeconfig, "-n", f.Namespace, "session", "shell"}, args...)...)
	return plugintest.Printed{Out: out, Err: errs, Code: code}
}

// lines are the command lines of the namespace's calls, sorted.
func lines(f *plugintest.Fixture) []string {
	f.T.Helper()
	list := &v1alpha1.ToolCallList{}
	if err := f.Client.List(f.T.Context(), list, client.InNamespace(f.Namespace)); err != nil {
		f.T.Fatal(err)
	}
	var lines []string
	for i := range list.Items {
		lines = append(lines, list.Items[i].Spec.Shell.Command)
	}
	slices.Sort(lines)
	return lines
}

// echo ends each call with its command line as output, with the exit code that "exit N" asks for.
func echo(f *plugintest.Fixture) {
	f.Operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		status := plugintest.Succeeded()
		switch call.Spec.Shell.Command {
		case "exit 3":
			status.Phase, status.Reason, status.ExitCode = v1alpha1.PhaseFailed, v1alpha1.ReasonNonZeroExit, ptr.To(int32(3))
		case "rm":
			return plugintest.Finished(v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied, Reason: v1alpha1.ReasonShellCommandNotAllowed, Message: "no rm"})
		case "end":
			return plugintest.Finished(v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonSessionEnded, RetrySafe: ptr.To(true)})
		}
		return plugintest.Finished(plugintest.WithOutput(status, call.Spec.Shell.Command+"\n", ""))
	})
}

// maxLine is how many characters a command line has at most.
const maxLine = 131071

const greeting = `Each line runs as a call of its own in session dev: this is not a terminal.
Files stay from line to line; variables, the directory and background processes don't.
Ctrl-C cancels the running call. "exit" or Ctrl-D leaves; the session goes on.
`

// Each line is a call of the session that the shell has read; its output and exit code are shown.
func TestShellRunsEachLine(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	s := f.ReadySession("dev")
	echo(f)
	got := shellOf(f, "one | two\n\n  \nexit 3\r\nthree", "dev", "-w", "x", "-e", "A=1", "--timeout", "5s")
	want := greeting + "[exit code 0 after 7ms]\n[exit code 3 after 7ms]\n[exit code 0 after 7ms]\n"
	if got != (plugintest.Printed{Out: "one | two\nexit 3\nthree\n", Err: want}) {
		t.Errorf("got %+v", got)
	}
	list := &v1alpha1.ToolCallList{}
	if err := f.Client.List(t.Context(), list, client.InNamespace(f.Namespace)); err != nil || len(list.Items) != 3 {
		t.Fatalf("%d calls, %v", len(list.Items), err)
	}
	for i := range list.Items {
		spec := &list.Items[i].Spec
		if spec.SessionRef.UID != string(s.UID) || spec.WorkingDir != "x" || spec.Env[0].Name != "A" || *spec.TimeoutSeconds != 5 {
			t.Errorf("got %+v", spec)
		}
	}
}

// The exit code is that of the last line, as of a shell; "exit" leaves with it, and what follows doesn't run.
func TestShellExits(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]struct {
		code  int
		lines string
		err   string
	}{
		"":                    {0, "", ""},
		"one\nexit 3\n":       {3, "exit 3 one", ""},
		"exit 3\none\n":       {0, "exit 3 one", ""},
		"exit 3\n exit \none": {3, "exit 3", ""},
		"rm\n":                {126, "rm", "ShellCommandNotAllowed): no rm\nTo see what the policy allows"},
		"rm\none\n":           {0, "one rm", "[exit code 126]"},
		"end\none\n":          {125, "end", "no more line can run in the session dev: start another one with kubectl toolcall session start"},
		"a\xffb\none\n":       {125, "", "the line is not UTF-8 text"},
		"a\x00b\none\n":       {125, "", "spec.shell.command in body should match"},
		strings.Repeat("x", maxLine+1) + "\none\n": {125, "", "spec.shell.command: Too long"},
	} {
		f := plugintest.New(t)
		f.ReadySession("dev")
		echo(f)
		got := shellOf(f, input, "dev", "--quiet")
		if want.err == "[exit code 126]" {
			got = plugintest.Printed{Out: got.Out, Err: got.Err + want.err, Code: got.Code}
		}
		if lines := strings.Join(lines(f), " "); got.Code != want.code || lines != want.lines || !strings.Contains(got.Err, want.err) {
			t.Errorf("%.20q: exit code %d, calls %.60q, %q", input, got.Code, lines, got.Err)
		}
	}
}

// A person sees an error and goes on; a script doesn't.
func TestErrorsOfAnInteractiveShell(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.ReadySession("dev")
	echo(f)
	s, out := newShell(f, strings.NewReader("a\xffb\nrm\none\nexit"))
	s.interactive = true
	if err := s.run(t.Context(), "dev"); err != nil {
		t.Errorf("got %v", err)
	}
	for _, part := range []string{"dev> error: the line is not UTF-8 text", "ShellCommandNotAllowed", "[exit code 126]\ndev> one\n[exit code 0 after 7ms]\ndev> "} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q isn't in %s", part, out.String())
		}
	}
	s, _ = newShell(f, strings.NewReader("end\none"))
	s.interactive = true
	if err := s.run(t.Context(), "dev"); !errors.Is(err, errSessionOver) {
		t.Errorf("of an ended session: %v", err)
	}
	broken := errors.New("broken")
	s, _ = newShell(f, iotest.ErrReader(broken))
	s.interactive = true
	if err := s.run(t.Context(), "dev"); !errors.Is(err, broken) {
		t.Errorf("of a broken input: %v", err)
	}
}

// newShell returns a shell whose signals the test sends.
func newShell(f *plugintest.Fixture, in io.Reader) (*sessionShell, *plugintest.LockedBuffer) {
	f.T.Helper()
	out := &plugintest.LockedBuffer{}
	c := plugintest.TestCLI(genericiooptions.IOStreams{In: in, Out: out, ErrOut: out})
	*c.Flags.KubeConfig, *c.Flags.Namespace = f.Kubeconfig, f.Namespace
	s := &sessionShell{CLI: c, signals: make(chan os.Signal, 2)}
	return s, out
}

// An interrupt cancels the running call. In a terminal the next line comes; otherwise, and after SIGTERM, the shell ends.
func TestInterruptsOfAShell(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		interactive bool
		signal      os.Signal
		code        int
		lines       string
	}{
		"Ctrl-C in a terminal":  {true, os.Interrupt, 0, "one sleep"},
		"Ctrl-C in a script":    {false, os.Interrupt, cli.CodeCancelled, "sleep"},
		"SIGTERM in a terminal": {true, syscall.SIGTERM, cli.CodeCancelled, "sleep"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := plugintest.New(t)
			f.ReadySession("dev")
			s, out := newShell(f, strings.NewReader("sleep\none\n"))
			s.interactive = c.interactive
			f.Operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
				switch {
				case call.Spec.Shell.Command == "one":
					return plugintest.Finished(plugintest.Succeeded())
				case call.Spec.Cancel:
					return plugintest.Finished(v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseCancelled, Reason: v1alpha1.ReasonCancelRequested})
				case call.Status.Phase == "":
					s.signals <- c.signal
					return plugintest.Running("pod")
				}
				return nil
			})
			err := s.run(context.Background(), "dev")
			var exit *cli.ExitError
			if c.code == 0 && err != nil || c.code != 0 && (!errors.As(err, &exit) || exit.Code != c.code) {
				t.Errorf("got %v: %s", err, out.String())
			}
			if lines := strings.Join(lines(f), " "); lines != c.lines || !strings.Contains(out.String(), "interrupted: cancelling call") {
				t.Errorf("calls %q: %s", lines, out.String())
			}
		})
	}
}

// At the prompt, Ctrl-C gives a new prompt, and SIGTERM leaves.
func TestInterruptsAtThePrompt(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.ReadySession("dev")
	in, typing := io.Pipe()
	defer typing.Close()
	s, out := newShell(f, in)
	s.interactive, s.quiet = true, true
	done := make(chan error, 1)
	go func() { done <- s.run(context.Background(), "dev") }()
	s.signals <- syscall.SIGPIPE
	s.signals <- os.Interrupt
	f.Eventually("second prompt", func() bool { return out.String() == "dev> \ndev> " })
	s.signals <- syscall.SIGTERM
	var exit *cli.ExitError
	if err := <-done; !errors.As(err, &exit) || exit.Code != cli.CodeCancelled {
		t.Errorf("got %v", err)
	}
}

// When nobody reads the output any more, the running call is cancelled and the shell ends, also with lines left.
func TestShellEndsWhenNobodyReads(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.ReadySession("dev")
	echo(f)
	s, _ := newShell(f, strings.NewReader("one\ntwo\n"))
	s.Out, s.interactive = plugintest.BrokenPipe, true
	var exit *cli.ExitError
	if err := s.run(context.Background(), "dev"); !errors.As(err, &exit) || exit.Code != cli.CodePipe {
		t.Errorf("got %v", err)
	}
	if lines := lines(f); len(lines) != 1 {
		t.Errorf("calls %q", lines)
	}
}

// A message begins a line of its own where output and messages go to one place, and no byte is added to a file.
func TestMessagesBeginALine(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.ReadySession("dev")
	f.Operate(func(*v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		return plugintest.Finished(plugintest.WithOutput(plugintest.Succeeded(), "no newline", ""))
	})
	s, out := newShell(f, strings.NewReader("one"))
	if err := s.run(context.Background(), "dev"); err != nil || !strings.HasSuffix(out.String(), "no newline\n[exit code 0 after 7ms]\n") {
		t.Errorf("got %v, %q", err, out.String())
	}
	if got := shellOf(f, "one", "dev"); got.Out != "no newline" || !strings.HasSuffix(got.Err, ".\n[exit code 0 after 7ms]\n") {
		t.Errorf("got %+v", got)
	}
}

func TestLinesAreReadOneByOne(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("x", maxLine)
	in := bufio.NewReaderSize(strings.NewReader("a\nb\r\n"+longest+"\nä\n\nlast"), 16)
	for i, want := range []string{"a", "b", longest, "ä", "", "last", "!EOF", "!EOF"} {
		got, err := readLine(in)
		if wrong, isError := strings.CutPrefix(want, "!"); isError && (err == nil || !strings.Contains(err.Error(), wrong)) || !isError && (err != nil || got != want) {
			t.Errorf("line %d: %.20q, %v", i, got, err)
		}
	}
	if _, err := readLine(bufio.NewReader(io.MultiReader(bytes.NewReader([]byte("half")), iotest.ErrReader(os.ErrClosed)))); !errors.Is(err, os.ErrClosed) {
		t.Errorf("of a broken input: %v", err)
	}
}
