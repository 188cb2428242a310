package shim

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner"
)

// defaultOverdue is how long a shim may take to end a command, after the command's timeout or its stop and its grace.
const defaultOverdue = 15 * time.Second

// call is one command in one shim.
type call struct {
	shim           *process
	timeout, grace time.Duration
	// kill is asked to end the command for memory. It has room for one.
	kill chan runner.Stop
	// killed says that kill was asked. It belongs to the watch.
	killed bool

	replies chan reply
	// lost is closed when the shim is gone.
	lost chan struct{}
	// overdue fires when the shim has taken limit too long.
	overdue *time.Timer
	limit   time.Duration

	handedOver time.Time
	startedAt  time.Time
	oomBefore  uint64
	// why is the first reason for which the command was told to end.
	why *runner.Stop

	// output outlives the call.
	output *remote
	// onStreams gets the command's streams when it runs; nil for nobody.
	onStreams func(stdout, stderr kept.Output)
	isShown   bool
	// files have what is kept of the output. They come with the last reply.
	files []*os.File
}

// Run runs a command as runner.Run does. Its Stdout and Stderr aren't used: the output is shown where the pool's is.
func (p *Pool) Run(ctx context.Context, cmd runner.Command) result.Outcome {
	for {
		if err := context.Cause(ctx); err != nil {
			why := runner.StopCause(err)
			return result.Outcome{Reason: why.Reason, Message: why.Message}
		}
		s, err := p.take()
		if err != nil {
			return result.Outcome{Reason: result.InvalidEnvironment, Message: "The command could not be started: " + err.Error() + "."}
		}
		o, err := p.runIn(ctx, s, &cmd)
		if !errors.Is(err, errNotHandedOver) {
			return o
		}
	}
}

// errNotHandedOver says that the shim can't have started the command: it was gone before it had the whole of it.
var errNotHandedOver = errors.New("the command was not handed over")

func (p *Pool) runIn(ctx context.Context, s *process, cmd *runner.Command) (result.Outcome, error) {
	s.number++
	c := &call{
		shim: s, timeout: cmd.Timeout(), grace: cmp.Or(cmd.Grace, runner.DefaultGrace), kill: make(chan runner.Stop, 1),
		replies: make(chan reply), lost: make(chan struct{}), limit: p.overdue, handedOver: time.Now(), onStreams: cmd.OnStreams,
		output: newRemote(s, kept.Limits{Memory: cmd.MaxBytesPerStream, Disk: cmd.KeepBytesPerStream}),
	}
	c.oomBefore, _ = runner.CgroupOOMKills()
	if err := s.send(&request{Number: s.number, Run: newCommand(cmd)}, filesWith(cmd.DirFD, cmd.Input)...); err != nil {
		p.discard(s)
		return result.Outcome{}, errNotHandedOver
	}
	// The shim has it. A command may run for hours.
	cmd.Stdin = nil
	if cmd.Input != nil {
		cmd.Input.Close()
	}
	p.add(c)
	go c.receive()
	ended := c.supervise(ctx)
	c.output.end(ended, c.files)
	if !c.isShown {
		c.output.stdout.Drop()
		c.output.stderr.Drop()
	}
	p.remove(c)
	if ended != nil && ended.Reusable {
		p.put(s)
		return *ended.Ended, nil
	}
	isEnded := p.discard(s)
	var o result.Outcome
	if ended != nil {
		o = *ended.Ended
	} else {
		o = c.lostOutcome()
	}
	if !isEnded {
		o.Message += " The session's pod ends, because processes of this call could not be ended."
	}
	return o, nil
}

// filesWith are those of the files that there are.
func filesWith(all ...*os.File) (files []*os.File) {
	for _, file := range all {
		if file != nil {
			files = append(files, file)
		}
	}
	return files
}

// add makes the memory that the command takes count, and prepares for the next one.
func (p *Pool) add(c *call) {
	p.mu.Lock()
	p.running[c] = true
	p.mu.Unlock()
	select {
	case p.busy <- struct{}{}:
	default:
	}
	p.startAhead()
}

func (p *Pool) remove(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, c)
}

// receive passes the shim's replies on, up to the end of the command or of the shim.
func (c *call) receive() {
	for {
		var r reply
		files, err := receive(c.shim.conn, &r, maxReply)
		if err != nil {
			close(c.lost)
			return
		}
		if r.Part != nil {
			c.output.take(r.Part)
			continue
		}
		c.files = files
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
	done := ctx.Done()
	for {
		select {
		case r := <-c.replies:
			switch {
			case r.Started != nil && c.startedAt.IsZero():
				c.startedAt = *r.Started
				c.showStreams()
			case r.Ended != nil:
				return &r
			}
		case <-c.lost:
			return nil
		case <-done:
			done = nil
			c.stop(runner.StopCause(context.Cause(ctx)))
		case why := <-c.kill:
			c.stop(why)
		case <-c.overdue.C:
			// The connection ends with it.
			c.shim.kill()
		}
	}
}

func (c *call) showStreams() {
	if c.onStreams != nil {
		c.onStreams(&c.output.stdout, &c.output.stderr)
		c.isShown = true
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
	if err := c.shim.send(&request{Number: c.shim.number, Stop: &why}); err != nil {
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
		Reason: result.Signaled, Message: "The command was ended together with the process that supervised it. Its output is lost.",
		Started: true, Signal: unix.SignalName(unix.SIGKILL),
		StartTime: c.startedAt.Round(0), CompletionTime: now.Round(0), DurationMS: now.Sub(c.startedAt).Milliseconds(),
	}
	if after, known := runner.CgroupOOMKills(); known && after > c.oomBefore {
		o.OOMKilled, o.Reason = true, result.OOMKilled
	}
	if c.why != nil {
		o.Reason, o.Message = c.why.Reason, c.why.Message+" Its output is lost."
	}
	return o
}
