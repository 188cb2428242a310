package sessions

import (
	"errors"
	"io"
	"slices"
	"strings"
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
	want := greeting + "[exit code 0]\n[exit code 3]\n[exit code 0]\n"
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
		"end\none\n":          {125, "end", "SessionEnded"},
		"a\xffb\none\n":       {125, "", "the line is not UTF-8 text"},
		strings.Repeat("x", maxLine+9) + "\none\n": {125, "", "a line has at most 131071 bytes"},
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
	out, err := interactive(f, strings.NewReader("a\xffb\nrm\nend\none\nexit"), nil)
	if err != nil {
		t.Errorf("got %v", err)
	}
	for _, part := range []string{"dev> error: the line is not UTF-8 text", "ShellCommandNotAllowed", "[exit code 126]\ndev> ", "[exit code 125]\ndev> one\n[exit code 0]\ndev> "} {
		if !strings.Contains(out, part) {
			t.Errorf("%q isn't in %s", part, out)
		}
	}
	broken := errors.New("broken")
	if _, err := interactive(f, iotest.ErrReader(broken), nil); !errors.Is(err, broken) {
		t.Errorf("of a broken input: %v", err)
	}
}

// interactive runs a shell as if a person typed. It returns what is printed to out, unless that is given.
func interactive(f *plugintest.Fixture, in io.Reader, out io.Writer) (string, error) {
	f.T.Helper()
	printed := &plugintest.LockedBuffer{}
	streams := genericiooptions.IOStreams{In: in, Out: printed, ErrOut: printed}
	if out != nil {
		streams.Out = out
	}
	c := plugintest.TestCLI(streams)
	*c.Flags.KubeConfig, *c.Flags.Namespace = f.Kubeconfig, f.Namespace
	cluster, err := c.Connect()
	if err != nil {
		f.T.Fatal(err)
	}
	s := &sessionShell{CLI: c, interactive: true}
	s.call.Changed = func(string) bool { return false }
	err = s.run(f.T.Context(), cluster, "dev")
	return printed.String(), err
}

// A call that is cancelled ends a script. A person goes on.
func TestACancelledCallOfAShell(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.ReadySession("dev")
	f.Operate(func(call *v1alpha1.ToolCall) *v1alpha1.ToolCallStatus {
		if call.Spec.Shell.Command == "sleep" {
			return plugintest.Finished(v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseCancelled, Reason: v1alpha1.ReasonCancelRequested})
		}
		return plugintest.Finished(plugintest.Succeeded())
	})
	if got := shellOf(f, "sleep\none\n", "dev"); got.Code != cli.CodeCancelled || strings.Join(lines(f), " ") != "sleep" {
		t.Errorf("%+v, calls %q", got, lines(f))
	}
	if out, err := interactive(f, strings.NewReader("sleep\none\n"), nil); err != nil || strings.Join(lines(f), " ") != "one sleep sleep" {
		t.Errorf("%v, calls %q: %s", err, lines(f), out)
	}
}

// When nobody reads the output any more, the running call is cancelled and the shell ends, also with lines left.
func TestShellEndsWhenNobodyReads(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.ReadySession("dev")
	echo(f)
	_, err := interactive(f, strings.NewReader("one\ntwo\n"), plugintest.BrokenPipe{})
	var exit *cli.ExitError
	if !errors.As(err, &exit) || exit.Code != cli.CodePipe {
		t.Errorf("got %v", err)
	}
	if lines := lines(f); len(lines) != 1 {
		t.Errorf("calls %q", lines)
	}
}
