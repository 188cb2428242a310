package runner

import (
	"context"
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/runner/sandbox"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// startError says why a process wasn't started.
type startError struct{ reason, message string }

func (e *startError) Error() string { return e.reason + ": " + e.message }

func startFailure(err error) result.Outcome {
	var refused *sandbox.RefusedError
	if errors.As(err, &refused) {
		o := result.Outcome{Reason: result.CommandNotFound, Message: refused.Message}
		refused.Report(&o)
		return o
	}
	var unheld *unheldError
	if errors.As(err, &unheld) {
		return result.Outcome{Reason: result.IsolationUnavailable, Message: unheld.Error(), Isolation: unheld.isolation}
	}
	var e *startError
	if !errors.As(err, &e) {
		e = &startError{result.InvalidEnvironment, "The command could not be started: " + err.Error() + "."}
	}
	return result.Outcome{Reason: e.reason, Message: e.message}
}

// start starts the process and the goroutines for its streams. After an error neither is left.
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
	if r.isShared && r.cmd.Rules != nil {
		beside := *r.cmd.Rules
		beside.Beside, r.cmd.Rules = true, &beside
	}
	domain, err := r.prepareDomain(ctx)
	if err != nil {
		return err
	}
	program, err := lookProgram(r.cmd.Argv, r.cmd.Env, domain)
	if err != nil {
		closeDomain(domain)
		return err
	}
	files, err := newChildFiles(&r.cmd)
	if err != nil {
		closeDomain(domain)
		return err
	}
	defer files.closeChild()
	closeOnExec()
	switch {
	case domain == nil:
		err = r.startPlain(program, dir, files, restriction{set: r.denyNetwork()})
	case domain.NeedsStage():
		err = r.startInside(domain, program, dir, files)
	default:
		err = r.startOnThread(domain, program, dir, files)
	}
	if err != nil {
		r.startedAt = time.Time{}
		files.closeOurs()
		return classify(err, program, dir)
	}
	limits := kept.Limits{Memory: r.cmd.MaxBytesPerStream, Disk: r.cmd.KeepBytesPerStream}
	r.stdout = newStream(files.stdout, limits, r.cmd.Stdout, r.matcher)
	r.stderr = newStream(files.stderr, limits, r.cmd.Stderr, r.matcher)
	// Both streams whole fit, unless the policy lets them be very large.
	r.shown = newShown(min(2*r.cmd.MaxBytesPerStream, result.MaxStreamBytes), r.matcher)
	r.outputs = newOutputs(files.poll, r.stdout, r.stderr, r.shown)
	if r.cmd.OnStreams != nil {
		r.cmd.OnStreams(r.stdout.capture.kept, r.stderr.capture.kept)
	}
	if r.cmd.Input != nil {
		// Whoever writes learns when the process doesn't read any more.
		r.cmd.Input.Close()
	}
	r.feeder = newFeeder(files.stdin, r.cmd.Stdin)
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
func (r *run) startPlain(program string, dir *workDir, files *childFiles, restrict restriction) error {
	discardStage()
	becomeSubreaper()
	r.before.beforeStart()
	r.startedAt = r.now()
	pid, err := dir.enter(func(cwd string) (int, error) { return fork(program, &r.cmd, files, cwd, restrict) })
	if err == nil {
		r.tree = newTree(pid, nil)
	}
	return err
}

// startOnThread starts the program in a domain that needs no stage.
func (r *run) startOnThread(domain *sandbox.Domain, program string, dir *workDir, files *childFiles) error {
	defer domain.Close()
	var inside *sandbox.Process
	enter := func() (err error) {
		inside, err = domain.Enter(r.cmd.DenyNetwork, r.connections.network())
		return err
	}
	err := r.startPlain(program, dir, files, restriction{set: enter, isHeld: domain.NeedsHold()})
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
			return &startError{result.InvalidEnvironment,
				"The command was not started, because its network access could not be denied: " + err.Error() + "."}
		}
		return nil
	}
}

// fork starts the program in a session of its own. It restricts a thread that is used for nothing else: the child inherits
// the restriction, the other threads of this process don't.
func fork(program string, cmd *Command, files *childFiles, cwd string, restrict restriction) (int, error) {
	attr := &syscall.ProcAttr{
		Dir: cwd, Env: cmd.Env, Files: files.child(), Sys: &syscall.SysProcAttr{Setsid: true, Ptrace: restrict.isHeld},
	}
	if attr.Env == nil {
		attr.Env = []string{} // nil would be our own
	}
	if restrict.set == nil {
		return syscall.ForkExec(program, cmd.Argv, attr)
	}
	var pid, thread int
	var err error
	kernel.OnThreadOfItsOwn(func() {
		if err = restrict.set(); err != nil {
			return
		}
		thread = unix.Gettid()
		if pid, err = syscall.ForkExec(program, cmd.Argv, attr); err == nil && restrict.isHeld {
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
