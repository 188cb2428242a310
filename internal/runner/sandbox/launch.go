package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/filter"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
	"toolcall.dev/operator/internal/runner/sandbox/programs"
)

// Stage is a process that waits to become a command. It leads a session of its own.
type Stage struct {
	PID     int
	control int
}

// NewStage starts a stage.
func NewStage() (*Stage, error) {
	s := &Stage{}
	var err error
	// The thread that forks is the parent, until it ends. A worker must not be.
	kernel.OnThreadOfItsOwn(func() { s.PID, s.control, err = kernel.ForkSelf(stageName) })
	if err != nil {
		return nil, fmt.Errorf("start a stage: %w", err)
	}
	kernel.ReserveWorkers()
	return s, nil
}

// Discard ends a stage that didn't become a command, and reaps it.
func (s *Stage) Discard() { s.discard(nil) }

// discard leaves the reaping to a tracer, if there is one.
func (s *Stage) discard(t *kernel.Tracer) {
	unix.Close(s.control)
	_ = unix.Kill(s.PID, unix.SIGKILL)
	if t != nil {
		t.Wait()
		return
	}
	for {
		if _, err := unix.Wait4(s.PID, nil, unix.WALL, nil); err != unix.EINTR {
			return
		}
	}
}

// Process is a command that was started in a domain.
type Process struct {
	domain *Domain
	// watch counts what was executed and refused; nil if the domain lists no programs.
	watch *programs.Watch
	// gate answers for it, or tracer follows it; both are nil where neither is needed.
	gate   *gate
	tracer *kernel.Tracer
}

// Refusal is about the programs that were refused; empty if there were none.
func (p *Process) Refusal() string {
	if p.watch == nil {
		return ""
	}
	return p.watch.Refusal()
}

// Tracer waits for all children of this process itself: nobody else may then. It is nil where there is none.
func (p *Process) Tracer() *kernel.Tracer {
	if p == nil {
		return nil
	}
	return p.tracer
}

// ErrStageLost says that the stage ended before it could become the command. Another may be tried: nothing ran.
var ErrStageLost = errors.New("the stage has ended")

// Execute makes the stage the command, and returns when it is. The error is the kernel's if the program can't be executed; if it may not
// be, the process says why in its Refusal. After an error the stage is gone.
func (s *Stage) Execute(c *Start) (*Process, error) {
	p := &Process{domain: c.Domain}
	if c.Domain.programs != nil {
		p.watch = programs.NewWatch(c.Domain.programs)
	}
	err := s.execute(c, p)
	if err == nil {
		unix.Close(s.control)
		return p, nil
	}
	s.discard(p.tracer)
	p.Stop()
	return p, err
}

func (s *Stage) execute(c *Start, p *Process) error {
	options := c.options()
	told := start{program: c.Program, argv: c.Argv, env: c.Env, files: len(c.Files), options: options}
	fds := []int{c.Directory}
	for _, fd := range c.Files {
		fds = append(fds, int(fd))
	}
	if ruleset := c.Domain.ruleset.Descriptor(); ruleset != kernel.NoRuleSet {
		fds, told.rulesets = append(fds, ruleset), 1
	}
	body, err := told.encode()
	if err != nil {
		return err
	}
	if options.Has(filter.Traced) {
		if p.tracer, err = kernel.NewTracer(s.PID, p.watch.MayRun, c.Wake); err != nil {
			return ErrStageLost
		}
	}
	message := append(binary.NativeEndian.AppendUint32(nil, uint32(len(body))), body...)
	for rights := unix.UnixRights(fds...); len(message) > 0; rights = nil {
		n, err := unix.SendmsgN(s.control, message, rights, nil, unix.MSG_NOSIGNAL)
		if err != nil {
			return ErrStageLost
		}
		message = message[n:]
	}
	return s.await(c, p, options)
}

var errMalformed = errors.New("the stage said something else than stages say")

// await follows the stage up to its execution.
func (s *Stage) await(c *Start, p *Process, options filter.Options) error {
	said := make([]byte, 5)
	rights := make([]byte, unix.CmsgSpace(4))
	for {
		n, nrights, _, _, err := unix.Recvmsg(s.control, said, rights, unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil && p.gate == nil:
			return ErrStageLost
		case err != nil:
			return err
		case n == 0 && options.Asks() && p.gate == nil:
			return ErrStageLost
		case n == 0:
			return p.begun()
		case said[0] == sayListener:
			fds, err := kernel.PassedFDs(rights[:nrights])
			if err != nil || len(fds) != 1 {
				return errMalformed
			}
			if p.gate, err = c.newGate(p, kernel.Listener(fds[0]), options); err != nil {
				return err
			}
		case n == len(said):
			return unix.Errno(binary.NativeEndian.Uint32(said[1:]))
		default:
			return errMalformed
		}
	}
}

// errKilled says that the command was killed before its first instruction.
var errKilled = errors.New("the command may not run")

// begun returns when the command is known to be allowed, or has ended by itself.
func (p *Process) begun() error {
	if p.tracer != nil && !p.tracer.Ran() && p.Refusal() != "" {
		return errKilled
	}
	return nil
}

// Stop ends the answering when the command and all that it started have ended. What has not ended can't execute anything
// any more.
func (p *Process) Stop() {
	if p.gate != nil {
		p.gate.close()
	}
	if p.tracer != nil {
		p.tracer.Stop()
	}
}

// namesRefused are the reasons for which a program that was refused may be why. A command that waits for what is refused
// ends at its time limit.
var namesRefused = []string{result.NonZeroExit, result.Signaled, result.TimedOut, result.OOMKilled}

// Report adds to an outcome what was executed and refused, and which walls held. It says so in the message of a call
// that didn't succeed and to which a program was refused.
func (p *Process) Report(o *result.Outcome) {
	o.Isolation = p.domain.Isolation()
	if p.watch != nil {
		p.watch.Report(o)
		o.AddRefusal(p.watch.Refusal(), namesRefused)
	}
	if p.gate != nil && p.gate.sockets != nil {
		p.gate.sockets.Report(o)
		o.AddRefusal(p.gate.sockets.Refusal(), namesRefused)
	}
}
