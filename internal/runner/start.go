package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/runner/sandbox"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// failure is the outcome of a command that wasn't started.
type failure struct{ result.Outcome }

func (f *failure) Error() string { return f.Reason + ": " + f.Message }

func failed(reason, message string) *failure {
	return &failure{result.Outcome{Reason: reason, Message: message}}
}

func startFailure(err error) result.Outcome {
	if known, ok := errors.AsType[*failure](err); ok {
		return known.Outcome
	}
	return result.Outcome{Reason: result.InvalidEnvironment, Message: "The command could not be started: " + err.Error() + "."}
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
	err = r.startCommand(&sandbox.Start{
		Domain: domain, Program: program, Argv: r.cmd.Argv, Env: r.cmd.Env,
		Directory: int(dir.Fd()), Files: r.pipes.fds(), DenyNetwork: r.cmd.DenyNetwork, Network: r.connections.network(), Wake: r.wake,
	})
	if err != nil {
		r.startedAt = time.Time{}
		return classify(err, program, dir)
	}
	// The other ends tell when the process has closed its own.
	r.pipes.Close()
	return nil
}

// startCommand starts a command in a stage, if its domain needs one.
func (r *run) startCommand(c *sandbox.Start) error {
	if c.Domain.NeedsStage() {
		return r.startInStage(c)
	}
	discardStage()
	r.beforeStart()
	inside, pid, err := c.Fork()
	if err == nil {
		r.inside, r.tree = inside, newTree(pid, inside)
		return nil
	}
	if _, ok := errors.AsType[*sandbox.RestrictionError](err); ok && r.cmd.Rules == nil {
		return failed(result.InvalidEnvironment,
			"The command was not started, because its network access could not be denied: "+err.Error()+".")
	}
	return err
}

// beforeStart is called right before the leader starts, or becomes the command.
func (r *run) beforeStart() {
	becomeSubreaper()
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &r.before.children)
	r.startedAt = r.cmd.now()
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
			fmt.Sprintf("The working directory %s can't be opened: %s.", quote(path), err))
	}
}
