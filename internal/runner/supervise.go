package runner

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of what follows the end of the process. drainLimit and leaveLimit together bound how long Run waits for pipes that
// descendants hold open.
const (
	// drainLimit is how long descendants may go on writing. A filter such as "> >(sed ...)" ends after its shell.
	drainLimit = 800 * time.Millisecond
	// closedLimit is how long they have when they have closed the output, which they do in the middle of their ends.
	closedLimit = 10 * time.Millisecond
	// leaveLimit is how long descendants have, after SIGTERM, to clean up.
	leaveLimit = 200 * time.Millisecond
	// killLimit is how long to wait after SIGKILL, which only processes that hang in the kernel survive for a moment.
	killLimit = 3 * time.Second
	// flushLimit is how long to read the rest of the pipes, and how long to wait for the live copy.
	flushLimit = time.Second
	// killInterval is the time between two rounds of SIGKILL, leaveInterval that between two checks for an end.
	killInterval  = 5 * time.Millisecond
	leaveInterval = 100 * time.Millisecond
	// pollInterval is how often to look for the end of the process in case a signal is lost.
	pollInterval = time.Second
)

// supervise waits for the end of the leader or stops it, and ends everything that is left.
func (r *run) supervise(ctx context.Context) {
	r.stop = r.waitLeader(ctx)
	switch {
	case r.stop == nil:
		r.drain(ctx)
		if !r.hasEnded() {
			r.leftRunning = r.tree.running()
			r.terminate(leaveLimit)
		}
	case !r.stop.Kill:
		r.terminate(cmp.Or(r.cmd.Grace, DefaultGrace))
	}
	r.kill()
	if r.inside != nil {
		r.inside.Stop()
	}
}

// waitLeader returns why the process must be stopped; nil if it ended by itself.
func (r *run) waitLeader(ctx context.Context) *Stop {
	var timeout <-chan time.Time
	if r.cmd.Timeout() > 0 {
		t := time.NewTimer(r.cmd.Timeout())
		defer t.Stop()
		timeout = t.C
	}
	safety := time.NewTicker(pollInterval)
	defer safety.Stop()
	for {
		var stop *Stop
		select {
		case <-r.children:
		case <-safety.C:
		case <-timeout:
			stop = new(AtTimeout(r.cmd.Timeout()))
		case <-ctx.Done():
			stop = new(StopCause(context.Cause(ctx)))
		}
		// A process that has ended by now has ended by itself, whatever happened at the same moment.
		if r.reap(); r.status != nil {
			return nil
		}
		if stop != nil {
			return stop
		}
	}
}

// reap collects the status of each child that has ended, and reports whether a process of the tree is left.
func (r *run) reap() (left bool) {
	status, left := r.tree.reap()
	if status != nil && r.status == nil {
		r.status, r.endedAt = status, r.cmd.now()
	}
	return left
}

// hasEnded reports whether the whole tree has ended.
func (r *run) hasEnded() bool {
	return !r.reap() && r.status != nil
}

// drain lets descendants finish writing.
func (r *run) drain(ctx context.Context) {
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	drained := r.pipes.Drained
	for !r.hasEnded() {
		select {
		case <-r.children:
		case <-drained:
			drained = nil
			limit.Reset(closedLimit)
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// terminate sends SIGTERM to the tree and waits up to limit for its end. SIGCONT resumes stopped processes.
func (r *run) terminate(limit time.Duration) {
	r.tree.signal(unix.SIGTERM)
	r.tree.signal(unix.SIGCONT)
	r.waitEnded(limit, leaveInterval, func() {})
}

// kill ends what is left: it kills until the kernel says that there is no child, or until its deadline.
func (r *run) kill() {
	r.survivors = !r.waitEnded(killLimit, killInterval, func() {
		r.tree.signal(unix.SIGKILL)
		for range killRounds {
			if r.hasEnded() {
				return
			}
			r.tree.killChildren()
		}
	})
}

// killRounds is how often a round of SIGKILL looks for orphans.
const killRounds = 20

// waitEnded waits up to limit until the tree has ended, and reports whether it has. It calls again at the start and at
// each interval. Each round looks at the deadline, however many processes have ended meanwhile.
func (r *run) waitEnded(limit, every time.Duration, again func()) bool {
	deadline := time.Now().Add(limit)
	interval := time.NewTicker(every)
	defer interval.Stop()
	for due := true; !r.hasEnded(); {
		if time.Now().After(deadline) {
			return false
		}
		if due {
			again()
		}
		select {
		case <-r.children:
			due = false
		case <-interval.C:
			due = true
		}
	}
	return true
}
