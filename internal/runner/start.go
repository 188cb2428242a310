package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/runner/sandbox"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// failure is the outcome of a command that wasn't started.
type failure struct{ result.Outcome }

func (f *failure) Error() string { return f.Reason + ": " + f.Message }

func failed(reason, message string) *failure {
	return &failure{result.Outcome{Reason: reason, Message: message}}
}

func startFailure(err error) result.Outcome {
	var refused *sandbox.RefusedError
	var known *failure
	switch {
	case errors.As(err, &refused):
		o := result.Outcome{Reason: result.CommandNotFound, Message: refused.Message}
		refused.Report(&o)
		return o
	case errors.As(err, &known):
		return known.Outcome
	default:
		return result.Outcome{Reason: result.InvalidEnvironment, Message: "The command could not be started: " + err.Error() + "."}
	}
}

// start starts the process. After an error it isn't there.
func (r *run) start(ctx context.Context) (err error) {
	dir, err := openDir(&r.cmd)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := r.giveUpNetwork(); err != nil {
		return err
	}
	if r.cmd.Network != nil && !r.cmd.DenyNetwork {
		if r.connections, err = newConnections(r.cmd.Network); err != nil {
			return err
		}
		r.cmd.Rules = rules.WithConnections(r.cmd.Rules)
	}
	if r.cmd.Beside && r.cmd.Rules != nil {
		beside := *r.cmd.Rules
		beside.Beside, r.cmd.Rules = true, &beside
	}
	domain, err := r.prepareDomain(ctx)
	if err != nil {
		return err
	}
	if domain != nil {
		defer domain.Close()
	}
	program, err := lookProgram(r.cmd.Argv, r.cmd.Env, domain)
	if err != nil {
		return err
	}
	closeOnExec()
	switch {
	case domain == nil:
		err = r.startPlain(program, dir, restriction{set: r.denyNetwork()})
	case domain.NeedsStage():
		err = r.startInside(domain, program, dir)
	default:
		err = r.startOnThread(domain, program, dir)
	}
	if err != nil {
		r.startedAt = time.Time{}
		return classify(err, program, dir)
	}
	// The other ends tell when the process has closed its own.
	r.pipes.Close()
	return nil
}

// restriction is what a thread sets on itself before it starts a program.
type restriction struct {
	// set is nil for nothing.
	set func() error
	// isHeld says that the program must not run before the thread has ended.
	isHeld bool
}

// startPlain starts the program.
func (r *run) startPlain(program string, dir *os.File, restrict restriction) error {
	discardStage()
	becomeSubreaper()
	r.before.beforeStart()
	r.startedAt = r.cmd.now()
	pid, err := r.fork(program, dir, restrict)
	if err == nil {
		r.tree = newTree(pid, nil)
	}
	return err
}

// startOnThread starts the program in a domain that needs no stage.
func (r *run) startOnThread(domain *sandbox.Domain, program string, dir *os.File) error {
	var inside *sandbox.Process
	enter := func() (err error) {
		inside, err = domain.Enter(r.cmd.DenyNetwork, r.connections.network())
		return err
	}
	err := r.startPlain(program, dir, restriction{set: enter, isHeld: domain.NeedsHold()})
	if err == nil {
		r.inside = inside
	} else if inside != nil {
		inside.Stop()
	}
	return err
}

// denyNetwork returns what denies the network to a program without rules; nil if nothing does.
func (r *run) denyNetwork() func() error {
	if !r.cmd.DenyNetwork {
		return nil
	}
	return func() error {
		if err := sandbox.DenyNetwork(); err != nil {
			return failed(result.InvalidEnvironment,
				"The command was not started, because its network access could not be denied: "+err.Error()+".")
		}
		return nil
	}
}

// fork starts the program in a session of its own. It restricts a thread that is used for nothing else: the child inherits
// the restriction, the other threads of this process don't.
func (r *run) fork(program string, dir *os.File, restrict restriction) (int, error) {
	attr := &syscall.ProcAttr{
		// The path of the descriptor, in the child, can't be made to lead elsewhere.
		Dir: fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), Env: r.cmd.Env, Files: r.pipes.fds(), Sys: &syscall.SysProcAttr{Setsid: true, Ptrace: restrict.isHeld},
	}
	if attr.Env == nil {
		attr.Env = []string{} // nil would be our own
	}
	if restrict.set == nil {
		return syscall.ForkExec(program, r.cmd.Argv, attr)
	}
	var pid, thread int
	var err error
	kernel.OnThreadOfItsOwn(func() {
		if err = restrict.set(); err != nil {
			return
		}
		thread = unix.Gettid()
		if pid, err = syscall.ForkExec(program, r.cmd.Argv, attr); err == nil && restrict.isHeld {
			kernel.Hold(pid)
		}
	})
	if err == nil && restrict.isHeld {
		kernel.Release(pid, thread)
	}
	return pid, err
}

// closeOnExec makes sure that the child doesn't inherit descriptors with which this process was started. Go's own are
// closed on exec already.
func closeOnExec() {
	if unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	// Kernels before 5.11.
	for _, fd := range proc.Numbers("/proc/self/fd") {
		if fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// openDir opens the directory in which the process starts. Its path may lead elsewhere later.
func openDir(cmd *Command) (dir *os.File, err error) {
	fd, path := 0, cmd.Dir
	if cmd.DirFD != nil {
		path = cmd.DirFD.Name()
		fd, err = unix.FcntlInt(cmd.DirFD.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	} else {
		fd, err = unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, dirError(path, err)
	}
	dir = os.NewFile(uintptr(fd), path)
	// A process that starts in the directory needs the right to search it.
	if err := unix.Faccessat(fd, ".", unix.X_OK, 0); err != nil {
		dir.Close()
		return nil, dirError(path, err)
	}
	return dir, nil
}

func dirError(path string, err error) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return failed(result.WorkingDirNotAllowed,
			fmt.Sprintf("The working directory %s can't be entered: permission denied.", quote(path)))
	case errors.Is(err, unix.ENOTDIR):
		return failed(result.WorkingDirNotFound, fmt.Sprintf("The working directory %s is not a directory.", quote(path)))
	default:
		return failed(result.WorkingDirNotFound,
			fmt.Sprintf("The working directory %s can't be opened: %s.", quote(path), unwrapped(err)))
	}
}

// unwrapped returns the kernel's message of an error.
func unwrapped(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}
