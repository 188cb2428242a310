package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/terminal"
)

const sessionShellLong = `Run each line of standard input as a shell call of a session, and show its output and exit code.

This is not a terminal. Each line is a call of its own, judged by the policy like any other: files stay from line to line,
but variables, the directory, the umask and background processes don't. To use them, put the commands on one line, or set
them for all lines with -e and -w. Programs get no input, and output is shown when the command has ended.

Ctrl-C cancels the running call. "exit", Ctrl-D or the end of the input leaves the shell; the session goes on.

The exit code is that of the last call, as for run, or 125 if a call could not be created or followed. If standard input is
not a terminal, such an error ends the shell.`

const sessionShellExample = `  kubectl toolcall session shell dev
  kubectl toolcall session shell dev -w /workspace/repo -e CI=true
  kubectl toolcall session shell dev --quiet < commands.txt`

// sessionShell runs lines as calls of a session.
type sessionShell struct {
	*cli
	call   callFlags
	output outputFlags
	quiet  bool

	cluster *cluster
	session *v1alpha1.ToolSession
	lines   *lineReader
	signals chan os.Signal
	// interactive says that a person types the lines: errors and interrupts don't end the shell.
	interactive bool
	// code is the exit code of the last call.
	code int
}

func newSessionShell(c *cli) *cobra.Command {
	s := &sessionShell{cli: c, output: outputFlags{live: liveAlways}}
	command := &cobra.Command{
		Use:               "shell NAME",
		Short:             "Run each line of standard input as a call of a session",
		Long:              sessionShellLong,
		Example:           sessionShellExample,
		Args:              requireSession,
		Annotations:       map[string]string{annotationCode: "yes"},
		ValidArgsFunction: c.completeArguments(1, listSessions),
		RunE: func(command *cobra.Command, args []string) error {
			s.interactive = isTerminal(c.In)
			s.signals = make(chan os.Signal, 2)
			// Unless SIGPIPE is caught, a write to a closed pipe ends the program and leaves the call running.
			signal.Notify(s.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
			defer signal.Stop(s.signals)
			return s.run(command.Context(), args[0])
		},
	}
	s.call.addContext(command)
	c.addRawFlag(command)
	command.Flags().BoolVarP(&s.quiet, "quiet", "q", false, "print only the output of the calls, and why calls failed that have no exit code")
	return command
}

// isTerminal reports whether a person can type into a reader.
func isTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// errLeave ends the shell with the exit code of the last call.
var errLeave = errors.New("leave the shell")

func (s *sessionShell) run(ctx context.Context, name string) error {
	if _, err := s.build("true"); err != nil {
		return err // A flag is wrong: better now than after the first line.
	}
	var err error
	if s.cluster, err = s.connect(); err != nil {
		return err
	}
	if s.session, err = s.cluster.getSession(ctx, name); err != nil {
		return err
	}
	if err := takesCalls(s.session); err != nil {
		return err
	}
	s.greet()
	s.lines = newLineReader(s.In)
	defer s.lines.close()
	for {
		line, err := s.read(ctx)
		if err == nil {
			err = s.runLine(ctx, line)
		}
		switch {
		case errors.Is(err, errLeave) && s.code == 0:
			return nil
		case errors.Is(err, errLeave):
			return &exitError{code: s.code}
		case err != nil && !s.survives(err):
			return err
		case err != nil:
			s.flush()
			fmt.Fprintln(s.ErrOut, "error: "+terminal.Safe(err.Error()))
		}
	}
}

// survives reports whether the shell goes on after an error: a person sees it and decides.
func (s *sessionShell) survives(err error) bool {
	var exit *exitError
	var input *inputError
	switch {
	case errors.As(err, &input), errors.As(err, &exit) && (exit.code == codePipe || errors.Is(err, errSessionOver)):
		return false
	default:
		return s.interactive
	}
}

// greet says what the shell is and isn't.
func (s *sessionShell) greet() {
	s.note(s.quiet, "Each line runs as a call of its own in session %s: this is not a terminal.", s.session.Name)
	s.note(s.quiet, "Files stay from line to line; variables, the directory and background processes don't.")
	s.note(s.quiet, "Ctrl-C cancels the running call. \"exit\" or Ctrl-D leaves; the session goes on.")
	if s.session.Spec.Suspend {
		s.note(s.quiet, "The session is suspended: calls wait until you run kubectl toolcall session resume %s -n %s", s.session.Name, s.session.Namespace)
	}
}

// inputError says that no more lines can be read.
type inputError struct{ err error }

func (e *inputError) Error() string { return "read standard input: " + e.err.Error() }
func (e *inputError) Unwrap() error { return e.err }

// read shows the prompt and returns the next line. A signal that ends the program leaves the shell.
func (s *sessionShell) read(ctx context.Context) (string, error) {
	s.prompt()
	for {
		select {
		case <-ctx.Done():
			return "", &inputError{ctx.Err()}
		case got := <-s.signals:
			switch {
			case got == syscall.SIGPIPE:
			case got == os.Interrupt && s.interactive:
				fmt.Fprintln(s.ErrOut)
				s.prompt()
			default:
				s.code = codeCancelled
				return "", errLeave
			}
		case line := <-s.lines.next():
			s.lines.received()
			return s.received(line)
		}
	}
}

func (s *sessionShell) received(line inputLine) (string, error) {
	var wrong *lineError
	switch {
	case errors.Is(line.err, io.EOF):
		if s.interactive {
			fmt.Fprintln(s.ErrOut)
		}
		return "", errLeave
	case errors.As(line.err, &wrong):
		s.code = codeFailed
		return "", line.err
	case line.err != nil:
		return "", &inputError{line.err}
	case strings.TrimSpace(line.text) == "exit":
		return "", errLeave
	default:
		return line.text, nil
	}
}

func (s *sessionShell) prompt() {
	if s.interactive {
		fmt.Fprint(s.ErrOut, terminal.SafeLine(s.session.Name)+"> ")
	}
}

// build builds the call of a line.
func (s *sessionShell) build(line string) (*v1alpha1.ToolCall, error) {
	flags := s.call
	flags.shell = line
	flags.changed = func(flag string) bool { return flag == "shell" || s.call.changed(flag) }
	return flags.build(nil, nil)
}
