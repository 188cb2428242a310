package shim

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
)

// defaultOverdue is how long a shim may take to end a command, after the command's timeout or its stop and its grace.
const defaultOverdue = 15 * time.Second

// call is one command in one shim.
type call struct {
	shim           *process
	timeout, grace time.Duration
	pipes          *runner.Pipes
	// kill is asked to end the command for memory. It has room for one.
	kill chan runner.Stop
	// killed says that kill was asked. It needs the pool's lock.
	killed bool

	// replies is closed when no more come.
	replies chan reply
	// overdue fires when the shim has taken limit too long.
	overdue *time.Timer
	limit   time.Duration

	handedOver time.Time
	startedAt  time.Time
	oomBefore  uint64
	// why is the first reason for which the command was told to end.
	why *runner.Stop
}

// Run runs a command as runner.Run does.
func (p *Pool) Run(ctx context.Context, cmd runner.Command) result.Outcome {
	return runner.Capture(&cmd, func(pipes *runner.Pipes) result.Outcome {
		for {
			if err := context.Cause(ctx); err != nil {
				why := runner.StopCause(err)
				return result.Outcome{Reason: why.Reason, Message: why.Message}
			}
			s, err := p.take()
			if err != nil {
				return result.Outcome{Reason: result.InvalidEnvironment, Message: "The command could not be started: " + err.Error() + "."}
			}
			if o, isHandedOver := p.runIn(ctx, s, &cmd, pipes); isHandedOver {
				return o
			}
		}
	})
}

// runIn runs a command in a shim. A shim that didn't take the whole command can't have started it.
func (p *Pool) runIn(ctx context.Context, s *process, cmd *runner.Command, pipes *runner.Pipes) (o result.Outcome, isHandedOver bool) {
	c := &call{
		shim: s, pipes: pipes, timeout: cmd.Timeout(), grace: cmp.Or(cmd.Grace, runner.DefaultGrace), kill: make(chan runner.Stop, 1),
		replies: make(chan reply), limit: p.overdue, handedOver: time.Now(),
	}
	c.oomBefore, _ = runner.CgroupOOMKills()
	files := pipes.Child[:]
	if cmd.DirFD != nil {
		files = append(files, cmd.DirFD)
	}
	if err := s.send(&request{Run: newCommand(cmd)}, c.limit, files...); err != nil {
		p.discard(s)
		return o, false
	}
	pipes.Close()
	p.add(c)
	go c.receive()
	ended := c.supervise(ctx)
	p.remove(c)
	if ended != nil && ended.Reusable {
		p.put(s)
		return *ended.Ended, true
	}
	isEnded := p.discard(s)
	if ended != nil {
		o = *ended.Ended
	} else {
		o = c.lostOutcome()
	}
	if !isEnded {
		o.Message += " The session's pod ends, because processes of this call could not be ended."
	}
	return o, true
}

// add makes the memory that the command takes count, and prepares for the next one.
func (p *Pool) add(c *call) {
	p.mu.Lock()
	p.running[c] = true
	if p.memory != nil && len(p.running) == 1 {
		var ctx context.Context
		ctx, p.unwatch = context.WithCancel(context.Background())
		p.done.Go(func() { runner.WatchMemory(ctx, p.memory, p.endLargest) })
	}
	p.mu.Unlock()
	p.startAhead()
}

func (p *Pool) remove(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, c)
	if p.unwatch != nil && len(p.running) == 0 {
		p.unwatch()
	}
}

// receive passes the shim's replies on, up to the end of the command or of the shim.
func (c *call) receive() {
	defer close(c.replies)
	for {
		var r reply
		if _, err := receive(c.shim.conn, &r, maxReply); err != nil {
			return
		}
		c.replies <- r
		if r.Ended != nil {
			return
		}
	}
}

// supervise follows the command to its end. It returns nil when the shim is gone.
func (c *call) supervise(ctx context.Context) *reply {
	c.overdue = time.NewTimer(c.limit)
	defer c.overdue.Stop()
	if c.timeout > 0 {
		c.overdue.Reset(c.timeout + c.grace + c.limit)
	} else {
		c.overdue.Stop()
	}
	done, drained := ctx.Done(), c.pipes.Drained
	for {
		select {
		case r, isThere := <-c.replies:
			switch {
			case !isThere:
				return nil
			case r.Started != nil:
				c.startedAt = *r.Started
				c.pipes.Started(c.startedAt)
			case r.Ended != nil:
				return &r
			}
		case <-drained:
			drained = nil
			c.tell(&request{Drained: true})
		case <-done:
			done = nil
			c.stop(runner.StopCause(context.Cause(ctx)))
		case why := <-c.kill:
			c.stop(why)
		case <-c.overdue.C:
			if c.why == nil {
				// Nobody told it to stop: its own limit has passed.
				c.why = new(runner.AtTimeout(c.timeout))
			}
			// The connection ends with it.
			c.shim.kill()
		}
	}
}

// stop tells the shim to end the command. One that ends already and has to end at once goes with its shim.
func (c *call) stop(why runner.Stop) {
	if c.why != nil {
		if why.Kill {
			c.shim.kill()
		}
		return
	}
	c.why = &why
	limit := c.limit
	if !why.Kill {
		limit += c.grace
	}
	c.overdue.Reset(limit)
	c.tell(&request{Stop: &why})
}

// tell tells the shim something about its command. One that can't be told is lost.
func (c *call) tell(r *request) {
	if err := c.shim.send(r, c.limit); err != nil {
		c.shim.kill()
	}
}

// lostOutcome is how a command ended whose shim is gone. Whether it was started isn't known, so that it counts as started.
func (c *call) lostOutcome() result.Outcome {
	now := time.Now()
	if c.startedAt.IsZero() {
		c.startedAt = c.handedOver
	}
	o := result.Outcome{
		Reason: result.Signaled, Message: "The command was ended together with the process that supervised it.",
		Started: true, Signal: unix.SignalName(unix.SIGKILL),
		StartTime: c.startedAt.Round(0), CompletionTime: now.Round(0), DurationMS: now.Sub(c.startedAt).Milliseconds(),
	}
	if after, known := runner.CgroupOOMKills(); known && after > c.oomBefore {
		o.OOMKilled, o.Reason = true, result.OOMKilled
	}
	if c.why != nil {
		o.Reason, o.Message = c.why.Reason, c.why.Message
	}
	return o
}
