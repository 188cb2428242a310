package sessions

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/calls"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const sessionShellLong = `Run each line of standard input as a shell call of a session, and show its output and exit code.

This is not a terminal. Each line is a call of its own, judged by the policy like any other: files stay from line to line,
but variables, the directory, the umask and background processes don't. To use them, put the commands on one line, or set
them for all lines with -e and -w. Programs get no input.

Ctrl-C cancels the running call. "exit", Ctrl-D or the end of the input leaves the shell; the session goes on.

The exit code is that of the last call, as for run. If standard input is not a terminal, a call that is cancelled, or that could
not be created or followed, ends the shell.`

const sessionShellExample = `  kubectl toolcall session shell dev
  kubectl toolcall session shell dev -w /workspace/repo -e CI=true
  kubectl toolcall session shell dev --quiet < commands.txt`

// maxLine bounds a line in bytes. The API bounds a command line in characters.
const maxLine = 131071

// sessionShell runs lines as calls of a session.
type sessionShell struct {
	*cli.CLI
	call  calls.Flags
	quiet bool
	// interactive says that a person types the lines: errors and interrupts don't end the shell.
	interactive bool
}

func newSessionShell(c *cli.CLI) *cobra.Command {
	s := &sessionShell{CLI: c}
	command := &cobra.Command{
		Use:               "shell NAME",
		Short:             "Run each line of standard input as a call of a session",
		Long:              sessionShellLong,
		Example:           sessionShellExample,
		Args:              cli.RequireSession,
		Annotations:       map[string]string{cli.AnnotationCode: "yes"},
		ValidArgsFunction: c.CompleteArguments(1, cli.ListSessions),
		RunE: c.Connected(func(ctx context.Context, cluster *cli.Cluster, args []string) error {
			file, ok := c.In.(*os.File)
			s.interactive = ok && term.IsTerminal(int(file.Fd()))
			return s.run(ctx, cluster, args[0])
		}),
	}
	s.call.AddContext(command)
	c.AddRawFlag(command)
	command.Flags().BoolVarP(&s.quiet, "quiet", "q", false, "print only the output of the calls, and why calls failed that have no exit code")
	return command
}

func (s *sessionShell) run(ctx context.Context, c *cli.Cluster, name string) error {
	if _, err := s.build("true"); err != nil {
		return err // A flag is wrong: better now than after the first line.
	}
	session, err := c.GetSession(ctx, name)
	if err != nil {
		return err
	}
	if err := calls.TakesCalls(session); err != nil {
		return err
	}
	s.greet(session)
	lines := bufio.NewScanner(s.In)
	lines.Buffer(nil, maxLine+len("\r\n"))
	code := 0
	for s.prompt(session); lines.Scan(); s.prompt(session) {
		line := strings.TrimSpace(lines.Text())
		if line == "exit" {
			return leave(code)
		}
		if line == "" {
			continue
		}
		err := s.runLine(ctx, c, session, line)
		code = codeOf(err)
		switch {
		case code == cli.CodePipe, !s.interactive && (code == cli.CodeFailed || code == cli.CodeCancelled):
			return err
		case err != nil:
			s.explain(err)
		}
		s.Note(s.quiet, "[exit code %d]", code)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read standard input, in which a line has at most %d bytes: %w", maxLine, err)
	}
	return leave(code)
}

// leave ends the shell with the exit code of the last call.
func leave(code int) error {
	if code == 0 {
		return nil
	}
	return &cli.ExitError{Code: code}
}

// codeOf is the exit code of a line.
func codeOf(err error) int {
	var exit *cli.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Code
	default:
		return cli.CodeFailed
	}
}

// explain prints an error after which the shell goes on, unless it is only an exit code.
func (s *sessionShell) explain(err error) {
	s.Flush()
	var exit *cli.ExitError
	if !errors.As(err, &exit) || exit.Err != nil {
		fmt.Fprintln(s.ErrOut, "error: "+terminal.Safe(err.Error()))
	}
}

// greet says what the shell is and isn't.
func (s *sessionShell) greet(session *v1alpha1.ToolSession) {
	s.Note(s.quiet, "Each line runs as a call of its own in session %s: this is not a terminal.", session.Name)
	s.Note(s.quiet, "Files stay from line to line; variables, the directory and background processes don't.")
	s.Note(s.quiet, "Ctrl-C cancels the running call. \"exit\" or Ctrl-D leaves; the session goes on.")
	if session.Spec.Suspend {
		s.Note(s.quiet, "The session is suspended: calls wait until you run kubectl toolcall session resume %s -n %s", session.Name, session.Namespace)
	}
}

func (s *sessionShell) prompt(session *v1alpha1.ToolSession) {
	if s.interactive {
		fmt.Fprint(s.ErrOut, terminal.SafeLine(session.Name)+"> ")
	}
}

// build builds the call of a line.
func (s *sessionShell) build(line string) (*v1alpha1.ToolCall, error) {
	if !utf8.ValidString(line) {
		return nil, errors.New("the line is not UTF-8 text: a call can only carry text, so encode the data, for example with base64")
	}
	flags := s.call
	flags.Shell = line
	flags.Changed = func(flag string) bool { return flag == "shell" || s.call.Changed(flag) }
	return flags.Build(nil, nil)
}

// runLine runs a line as a call of this very session, and shows its output.
func (s *sessionShell) runLine(ctx context.Context, c *cli.Cluster, session *v1alpha1.ToolSession, line string) error {
	call, err := s.build(line)
	if err != nil {
		return err
	}
	call.Namespace, call.Spec.SessionRef = session.Namespace, calls.ReferenceTo(session)
	o := calls.NewRunOptions(s.CLI)
	o.Quiet = true
	return o.Start(ctx, c, call)
}
