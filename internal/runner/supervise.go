package runner

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
)

// Bounds of what follows the end of the process. Together, the first two are how long pipes that
// descendants hold open are waited for.
const (
	// drainLimit is how long descendants may go on writing: a filter such as "> >(sed ...)" ends after its shell.
	drainLimit = 800 * time.Millisecond
	// leaveLimit is how long descendants have, after SIGTERM, to clean up.
	leaveLimit = 200 * time.Millisecond
	// killLimit is how long to wait for processes that were sent SIGKILL: only ones that hang in the kernel take it.
	killLimit = 3 * time.Second
	// flushLimit is how long to read what was left in the pipes, and how long to wait for the live copy.
	flushLimit = time.Second
	// killInterval is between two rounds of SIGKILL, leaveInterval between two looks at who is left.
	killInterval  = 5 * time.Millisecond
	leaveInterval = 100 * time.Millisecond
	// pollInterval is how often to look for an end that no signal told of.
	pollInterval = time.Second
)

// supervise waits for the leader's end, or stops it, and leaves nothing behind.
func (r *run) supervise(ctx context.Context) {
	r.stop = r.waitLeader(ctx)
	if r.stop != nil {
		r.terminate(r.grace())
	} else {
		r.drain(ctx)
		if !r.hasEnded() {
			r.terminate(leaveLimit)
		}
	}
	r.kill()
	r.feeder.finish()
	r.stdout.finish(flushLimit)
	r.stderr.finish(flushLimit)
}

func (r *run) grace() time.Duration {
	if r.cmd.Grace > 0 {
		return r.cmd.Grace
	}
	return DefaultGrace
}

// waitLeader returns why the process must be stopped, nil when it ended by itself.
func (r *run) waitLeader(ctx context.Context) *Stop {
	var timeout <-chan time.Time
	if r.cmd.Timeout > 0 {
		t := time.NewTimer(r.cmd.Timeout)
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
			stop = &Stop{result.TimedOut, "The command was stopped at its limit of " + seconds(r.cmd.Timeout) + "."}
		case <-ctx.Done():
			stop = stopCause(context.Cause(ctx))
		}
		// A process that has ended by now has ended by itself, whatever came at the same moment.
		if r.reap(); r.status != nil {
			return nil
		}
		if stop != nil {
			return stop
		}
	}
}

// reap takes the status of every child that has ended and reports whether any of the tree is left.
func (r *run) reap() (left bool) {
	status, left := r.tree.reap()
	if status != nil && r.status == nil {
		r.status, r.endedAt = status, r.now()
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
	for _, s := range []*stream{r.stdout, r.stderr} {
		for open := true; open; {
			select {
			case <-s.done:
				open = false
			case <-r.children:
				r.reap()
			case <-limit.C:
				return
			case <-ctx.Done():
				return
			}
		}
	}
}

// terminate asks the whole tree to end and waits for that up to limit. SIGCONT wakes those that were stopped.
func (r *run) terminate(limit time.Duration) {
	r.tree.signal(unix.SIGTERM)
	r.tree.signal(unix.SIGCONT)
	r.waitEnded(limit, leaveInterval, func() {})
}

// kill ends what is left.
func (r *run) kill() {
	if r.hasEnded() {
		return
	}
	r.survivors = !r.waitEnded(killLimit, killInterval, func() { r.tree.signal(unix.SIGKILL) })
}

// waitEnded waits until the tree has ended, and calls again at the start and every so often. It says whether
// the tree has ended within limit.
func (r *run) waitEnded(limit, every time.Duration, again func()) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	interval := time.NewTicker(every)
	defer interval.Stop()
	again()
	for !r.hasEnded() {
		select {
		case <-r.children:
		case <-interval.C:
			again()
		case <-deadline.C:
			return r.hasEnded()
		}
	}
	return true
}
