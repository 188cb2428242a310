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
)

// runMutex keeps a second Run out: both would take each other's processes for their own.
var runMutex sync.Mutex

// Run starts the command and returns when it, and everything it started, has ended. The context's end
// stops it; a Stop as its cause names the reason, CancelRequested otherwise.
func Run(ctx context.Context, cmd Command, opts ...Option) result.Outcome {
	runMutex.Lock()
	defer runMutex.Unlock()
	r := &run{cmd: cmd, options: newOptions(opts), children: make(chan os.Signal, 1)}
	if err := context.Cause(ctx); err != nil {
		r.stop = stopCause(err)
		return r.outcome()
	}
	// Before the start, so that no child's end is missed.
	signal.Notify(r.children, unix.SIGCHLD)
	defer signal.Stop(r.children)
	r.oomBefore, _ = r.oomKills()
	if err := r.start(); err != nil {
		return startFailure(err)
	}
	r.onStart(r.startedAt)
	r.supervise(ctx)
	return r.outcome()
}

// run is one process on its way.
type run struct {
	options
	cmd      Command
	children chan os.Signal
	tree     tree
	stdout   *stream
	stderr   *stream
	feeder   *feeder

	oomBefore uint64
	startedAt time.Time
	endedAt   time.Time
	// status is nil until the leader was reaped.
	status *unix.WaitStatus
	// stop is why the process was stopped; nil when it ended by itself.
	stop *Stop
	// survivors is true when some process could not be ended.
	survivors bool
}

func stopCause(err error) *Stop {
	var s Stop
	switch {
	case errors.As(err, &s):
		return &s
	case errors.Is(err, context.DeadlineExceeded):
		return &Stop{result.TimedOut, "The command was stopped at its deadline."}
	case errors.Is(err, context.Canceled):
		return &Stop{result.CancelRequested, "The command was stopped on request."}
	default:
		return &Stop{result.CancelRequested, "The command was stopped on request: " + err.Error()}
	}
}
