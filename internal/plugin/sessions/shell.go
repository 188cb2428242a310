package sessions

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

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

The exit code is that of the last call, as for run, or 125 if a call could not be created or followed. If standard input is
not a terminal, such an error ends the shell.`

const sessionShellExample = `  kubectl toolcall session shell dev
  kubectl toolcall session shell dev -w /workspace/repo -e CI=true
  kubectl toolcall session shell dev --quiet < commands.txt`

// sessionShell runs lines as calls of a session.
type sessionShell struct {
	*cli.CLI
	call  calls.Flags
	quiet bool

	cluster *cli.Cluster
	session *v1alpha1.ToolSession
	lines   *lineReader
	signals chan os.Signal
	// interactive says that a person types the lines: errors and interrupts don't end the shell.
	interactive bool
	// code is the exit code of the last call.
	code int
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
		RunE: func(command *cobra.Command, args []string) error {
			s.interactive = terminal.Is(c.In)
			s.signals = make(chan os.Signal, 2)
			// Unless SIGPIPE is caught, a write to a closed pipe ends the program and leaves the call running.
			signal.Notify(s.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
			defer signal.Stop(s.signals)
			return s.run(command.Context(), args[0])
		},
	}
	s.call.AddContext(command)
	c.AddRawFlag(command)
	command.Flags().BoolVarP(&s.quiet, "quiet", "q", false, "print only the output of the calls, and why calls failed that have no exit code")
	return command
}

// errLeave ends the shell with the exit code of the last call.
var errLeave = errors.New("leave the shell")

func (s *sessionShell) run(ctx context.Context, name string) error {
	var err error
	if s.cluster, err = s.Connect(); err != nil {
		return err
	}
	if s.session, err = s.cluster.GetSession(ctx, name); err != nil {
		return err
	}
	if err := calls.TakesCalls(s.session); err != nil {
		return err
	}
	s.greet()
	s.lines = &lineReader{in: bufio.NewReader(s.In)}
	for {
		line, err := s.read(ctx)
		if err == nil {
			err = s.runLine(ctx, line)
		}
		switch {
		case errors.Is(err, errLeave) && s.code == 0:
			return nil
		case errors.Is(err, errLeave):
			return &cli.ExitError{Code: s.code}
		case err != nil && !s.survives(err):
			return err
		case err != nil:
			s.Flush()
			fmt.Fprintln(s.ErrOut, "error: "+terminal.Safe(err.Error()))
		}
	}
}

// survives reports whether the shell goes on after an error: a person sees it and decides.
func (s *sessionShell) survives(err error) bool {
	var exit *cli.ExitError
	isOver := errors.Is(err, errNoInput) || errors.Is(err, errSessionOver) || errors.As(err, &exit) && exit.Code == cli.CodePipe
	return s.interactive && !isOver
}

// greet says what the shell is and isn't.
func (s *sessionShell) greet() {
	s.Note(s.quiet, "Each line runs as a call of its own in session %s: this is not a terminal.", s.session.Name)
	s.Note(s.quiet, "Files stay from line to line; variables, the directory and background processes don't.")
	s.Note(s.quiet, "Ctrl-C cancels the running call. \"exit\" or Ctrl-D leaves; the session goes on.")
	if s.session.Spec.Suspend {
		s.Note(s.quiet, "The session is suspended: calls wait until you run kubectl toolcall session resume %s -n %s", s.session.Name, s.session.Namespace)
	}
}

// errNoInput says that no more lines can be read.
var errNoInput = errors.New("read standard input")

// read shows the prompt and returns the next line. A signal that ends the program leaves the shell.
func (s *sessionShell) read(ctx context.Context) (string, error) {
	s.prompt()
	for {
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%w: %w", errNoInput, ctx.Err())
		case got := <-s.signals:
			switch {
			case got == syscall.SIGPIPE:
			case got == os.Interrupt && s.interactive:
				fmt.Fprintln(s.ErrOut)
				s.prompt()
			default:
				s.code = cli.CodeCancelled
				return "", errLeave
			}
		case line := <-s.lines.next():
			s.lines.received()
			return s.received(line)
		}
	}
}

func (s *sessionShell) received(line inputLine) (string, error) {
	switch {
	case errors.Is(line.err, io.EOF):
		if s.interactive {
			fmt.Fprintln(s.ErrOut)
		}
		return "", errLeave
	case line.err != nil:
		return "", fmt.Errorf("%w: %w", errNoInput, line.err)
	case strings.TrimSpace(line.text) == "exit":
		return "", errLeave
	}
	return line.text, nil
}

func (s *sessionShell) prompt() {
	if s.interactive {
		fmt.Fprint(s.ErrOut, terminal.SafeLine(s.session.Name)+"> ")
	}
}

// build builds the call of a line.
func (s *sessionShell) build(line string) (*v1alpha1.ToolCall, error) {
	flags := s.call
	flags.Template.Spec.Shell = &v1alpha1.ShellAction{Command: line}
	return flags.Build(nil, nil)
}

// errSessionOver says that no more line of a shell can run.
var errSessionOver = errors.New("no more line can run in the session")

// runLine runs a line as a call, and shows its output and exit code.
func (s *sessionShell) runLine(ctx context.Context, line string) error {
	if strings.TrimSpace(line) == "" {
		return nil
	}
	s.code = cli.CodeFailed
	call, err := s.build(line)
	if err != nil {
		return err
	}
	call.Namespace, call.Spec.SessionRef = s.session.Namespace, calls.ReferenceTo(s.session)
	interrupts := calls.NewInterrupts(ctx, s.signals, s.ErrOut)
	defer interrupts.Close()
	created, err := s.cluster.Follow().Create(interrupts.Waiting, call)
	if err != nil {
		return s.interrupted(interrupts, err)
	}
	done, newline, err := s.show(created, interrupts)
	if err != nil {
		return s.interrupted(interrupts, err)
	}
	if newline {
		fmt.Fprintln(s.ErrOut)
	}
	return s.interrupted(interrupts, s.report(done))
}

// show shows the output of a call until it finishes. newline says that a message needs a line of its own.
func (s *sessionShell) show(call *v1alpha1.ToolCall, i *calls.Interrupts) (done *v1alpha1.ToolCall, newline bool, err error) {
	p := cli.NewProgress(s.ErrOut, s.quiet, cli.SessionCallDelay)
	defer p.Stop()
	shown := calls.NewDisplay(s.CLI, true)
	end := &endWriter{Writer: shown.Out, last: '\n'}
	shown.Out, shown.Changed = end, p.Update
	done, err = calls.Wait(s.cluster, call, shown, i)
	return done, shown.Mixed && end.last != '\n' && !s.quiet, err
}

// endWriter remembers the last byte that was written.
type endWriter struct {
	io.Writer
	last byte
}

func (e *endWriter) Write(p []byte) (int, error) {
	if len(p) > 0 {
		e.last = p[len(p)-1]
	}
	return e.Writer.Write(p)
}

// report prints the exit code of a call, and why it failed if its command has none.
func (s *sessionShell) report(call *v1alpha1.ToolCall) error {
	err := calls.ReportOutcome(s.CLI, call)
	s.code = cli.ExitCode(call)
	took := ""
	if ms := call.Status.DurationMilliseconds; ms != nil {
		took = " after " + cli.FormatMilliseconds(*ms)
	}
	s.Note(s.quiet, "[exit code %d%s]", s.code, took)
	switch call.Status.Reason {
	case v1alpha1.ReasonSessionEnded, v1alpha1.ReasonSessionNotFound, v1alpha1.ReasonSessionNotAllowed:
		return &cli.ExitError{Code: s.code, Err: fmt.Errorf("%w %s: start another one with kubectl toolcall session start", errSessionOver, terminal.Safe(s.session.Name))}
	}
	var exit *cli.ExitError
	if errors.As(err, &exit) && exit.Err == nil {
		return nil
	}
	return err
}

// interrupted ends the shell after a signal that is meant for the program, or that no person sent.
func (s *sessionShell) interrupted(i *calls.Interrupts, err error) error {
	got := i.FirstSignal()
	if got == nil || s.interactive && got != syscall.SIGTERM || !s.interactive && err != nil {
		return err
	}
	s.code = cli.CodeCancelled
	return errLeave
}
