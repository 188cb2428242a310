package runner

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/proc"
	"toolcall.dev/operator/internal/runner/sandbox"
)

// runMutex allows one Run at a time: two would take each other's processes for their own.
var runMutex sync.Mutex

// Run starts a command that has its container for itself, and returns when it and everything it started has ended. It stops the
// command when the context ends. The reason is that of the Stop which is the cause of the context, and CancelRequested without one.
//
// What the outcome says beside the output is neither redacted nor shortened.
func Run(ctx context.Context, cmd Command) result.Outcome {
	within, stop := withinLimit(ctx)
	defer stop()
	return Capture(&cmd, func(pipes *Pipes) result.Outcome { return Execute(within, cmd, pipes) })
}

// Execute is Run for a command whose input and output somebody else has the other ends of.
func Execute(ctx context.Context, cmd Command, pipes *Pipes) result.Outcome {
	runMutex.Lock()
	defer runMutex.Unlock()
	// Before this returns: the output ends for its reader when these ends are closed.
	defer pipes.Close()
	r := newRun(cmd, pipes, make(chan os.Signal, 1))
	if err := context.Cause(ctx); err != nil {
		r.stop = new(StopCause(err))
		return r.outcome()
	}
	// Before the start, so that the end of no child is missed.
	signal.Notify(r.children, unix.SIGCHLD)
	defer signal.Stop(r.children)
	// One that was started ahead for this call and isn't used.
	defer discardStage()
	defer func() { r.connections.close() }()
	r.oomBefore, _ = r.cmd.oomKills()
	if err := r.start(ctx); err != nil {
		return startFailure(err)
	}
	pipes.Started(r.startedAt)
	r.before.memory = proc.PeakMemory()
	r.supervise(ctx)
	return r.outcome()
}

// run is the state of one Run.
type run struct {
	cmd   Command
	pipes *Pipes
	// connections decide about the command's; nil when nothing does.
	connections *connections
	// noNetwork is what the node lacks for a network that nobody asked for.
	noNetwork string
	// domain is that of a question to a program, which has no rules; nil for a command.
	domain   *sandbox.Domain
	children chan os.Signal
	tree     *tree
	// inside is what the command is held by; nil for a command without rules.
	inside *sandbox.Process

	oomBefore uint64
	// before is what the command didn't take of what is counted at its end.
	before    usageBefore
	startedAt time.Time
	endedAt   time.Time
	// status is nil until the leader was reaped.
	status *unix.WaitStatus
	// stop is why the process was stopped; nil if it ended by itself.
	stop *Stop
	// leftRunning is how many processes the leader left when it ended by itself.
	leftRunning int64
	// survivors says that some process could not be ended.
	survivors bool
}

func newRun(cmd Command, pipes *Pipes, children chan os.Signal) *run {
	if cmd.now == nil {
		cmd.now = time.Now
	}
	if cmd.oomKills == nil {
		cmd.oomKills = CgroupOOMKills
	}
	return &run{cmd: cmd, pipes: pipes, children: children}
}

// AtTimeout is why a command is stopped that has taken all of its time.
func AtTimeout(limit time.Duration) Stop {
	return Stop{Reason: result.TimedOut, Message: "The command was stopped at its limit of " + seconds(limit) + "."}
}

// StopCause returns why Run stops a command whose context ended with an error.
func StopCause(err error) Stop {
	if s, ok := errors.AsType[Stop](err); ok {
		return s
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Stop{Reason: result.TimedOut, Message: "The command was stopped at its deadline."}
	case errors.Is(err, context.Canceled):
		return Stop{Reason: result.CancelRequested, Message: "The command was stopped on request."}
	default:
		return Stop{Reason: result.CancelRequested, Message: "The command was stopped on request: " + err.Error()}
	}
}
