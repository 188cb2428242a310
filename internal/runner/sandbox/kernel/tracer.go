package kernel

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Tracer holds what a process executes where the kernel can't ask: it traces every process and thread that comes of it, and looks at each
// program before its first instruction. It refuses nothing: it kills what may not run.
//
// The filter keeps processes from leaving the trace. The kernel kills them all when the tracer ends. Nobody else of this process may wait
// for children meanwhile: gVisor would hand the stops to whoever asks first.
type Tracer struct {
	leader int
	mayRun func(pid int) bool
	wake   func()
	// stopped says that nothing may be executed any more.
	stopped atomic.Bool
	// first is closed at the first execve, or when everything has ended. ran says that the program of it may run.
	first chan struct{}
	ran   bool
	// status is the leader's end, over is closed when no child is left.
	status atomic.Pointer[unix.WaitStatus]
	over   chan struct{}
	// memory is the most that one process had, in KiB.
	memory atomic.Int64
}

// NewTracer traces a process that waits for its command. On a worker, mayRun is called before the first instruction of each program,
// and wake when a child may have ended.
func NewTracer(pid int, mayRun func(pid int) bool, wake func()) (*Tracer, error) {
	t := &Tracer{leader: pid, mayRun: mayRun, wake: wake, first: make(chan struct{}), over: make(chan struct{})}
	seized := make(chan error)
	OnWorker(func() {
		err := seize(pid, followAll)
		if err == nil {
			err = settle(pid)
		}
		seized <- err
		if err == nil {
			t.work()
		}
	})
	if err := <-seized; err != nil {
		return nil, err
	}
	return t, nil
}

// Ran waits for the first execve, and reports whether its program may run.
func (t *Tracer) Ran() bool {
	<-t.first
	return t.ran
}

// Stop lets nothing be executed from now on.
func (t *Tracer) Stop() { t.stopped.Store(true) }

// Wait waits until all that is traced has ended.
func (t *Tracer) Wait() { <-t.over }

// Ended returns the leader's status when it has ended, and whether a child of this process is left.
func (t *Tracer) Ended() (leader *unix.WaitStatus, left bool) {
	select {
	case <-t.over:
	default:
		left = true
	}
	return t.status.Load(), left
}

// MaxMemory is the most memory in bytes that one process had at a time, of those that have ended.
func (t *Tracer) MaxMemory() int64 { return t.memory.Load() << 10 }

// settle waits until a traced stage has made its own execve, which may end after the runner knows that the stage runs. Each later execve is
// the command's.
func settle(pid int) error {
	for {
		// Another stop, such as that for a new thread, cancels this request (ptrace(2), PTRACE_INTERRUPT): it is made again.
		if err := unix.PtraceInterrupt(pid); err != nil {
			return err
		}
		status, err := awaitStop(pid)
		if err != nil {
			return err
		}
		var signal unix.Signal
		event := eventOf(status)
		if event == 0 {
			signal = status.StopSignal()
		}
		resume(pid, unix.PTRACE_CONT, signal)
		if event == unix.PTRACE_EVENT_STOP {
			return nil
		}
	}
}

// work handles what is traced until all of it has ended, and reaps it.
func (t *Tracer) work() {
	defer t.wake()
	defer close(t.over)
	defer t.learn(false)
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		pid, err := unix.Wait4(-1, &status, unix.WALL, &usage)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return
		case status.Stopped():
			t.handle(pid, eventOf(status), status.StopSignal())
		default:
			t.memory.Store(max(t.memory.Load(), usage.Maxrss))
			if pid == t.leader {
				t.status.CompareAndSwap(nil, &status) // another process may have its ID later
			}
			t.wake()
		}
	}
}

// handle lets a stopped thread go on, or kills it. Without an event it is about to get a signal.
func (t *Tracer) handle(pid, event int, signal unix.Signal) {
	request, delivered := uintptr(unix.PTRACE_CONT), unix.Signal(0)
	switch event {
	case 0:
		delivered = signal
	case unix.PTRACE_EVENT_EXEC:
		mayRun := !t.stopped.Load() && t.mayRun(pid)
		if t.learn(mayRun); !mayRun {
			_ = unix.Kill(pid, unix.SIGKILL)
			return
		}
	case unix.PTRACE_EVENT_STOP:
		if signal == unix.SIGSTOP || signal == unix.SIGTSTP || signal == unix.SIGTTIN || signal == unix.SIGTTOU {
			request = unix.PTRACE_LISTEN // it stays stopped, as job control wants
		}
	}
	resume(pid, request, delivered)
}

// learn says what became of the first execve, once.
func (t *Tracer) learn(ran bool) {
	select {
	case <-t.first:
	default:
		t.ran = ran
		close(t.first)
	}
}
