package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/terminal"
)

// errSessionOver says that no more line of a shell can run.
var errSessionOver = errors.New("no more line can run in the session")

// runLine runs a line as a call, and shows its output and exit code.
func (s *sessionShell) runLine(ctx context.Context, line string) error {
	if strings.TrimSpace(line) == "" {
		return nil
	}
	call, err := s.build(line)
	if err != nil {
		return err
	}
	call.Namespace, call.Spec.SessionRef = s.session.Namespace, referenceTo(s.session)
	interrupts := newInterrupts(ctx, s.signals)
	defer interrupts.close()
	s.code = codeFailed
	// The first interrupt doesn't stop the creation: a call that may exist must be known, so that it can be cancelled.
	created, err := s.cluster.follow().Create(interrupts.waiting, call)
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
func (s *sessionShell) show(call *v1alpha1.ToolCall, i *interrupts) (done *v1alpha1.ToolCall, newline bool, err error) {
	p := newProgress(s.ErrOut, s.quiet, sessionCallDelay)
	defer p.stop()
	shown := s.output.display(s.cli)
	end := &endWriter{Writer: shown.out, last: '\n'}
	shown.out, shown.changed = end, p.update
	done, err = s.wait(s.cluster, call, shown, i)
	return done, shown.mixed && end.last != '\n' && !s.quiet, err
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
	err := s.reportOutcome(call)
	s.code = exitCode(call)
	if took := call.Status.DurationMilliseconds; took != nil {
		s.note(s.quiet, "[exit code %d after %s]", s.code, formatMilliseconds(*took))
	} else {
		s.note(s.quiet, "[exit code %d]", s.code)
	}
	switch call.Status.Reason {
	case v1alpha1.ReasonSessionEnded, v1alpha1.ReasonSessionNotFound, v1alpha1.ReasonSessionNotAllowed:
		return &exitError{code: s.code, err: fmt.Errorf("%w %s: start another one with kubectl toolcall session start", errSessionOver, terminal.Safe(s.session.Name))}
	}
	var exit *exitError
	if errors.As(err, &exit) && exit.err == nil {
		return nil
	}
	return err
}

// interrupted ends the shell after a signal that is meant for the program, or that no person sent.
func (s *sessionShell) interrupted(i *interrupts, err error) error {
	got := i.firstSignal()
	if got == nil || s.interactive && got != syscall.SIGTERM || !s.interactive && err != nil {
		return err
	}
	s.code = codeCancelled
	return errLeave
}
