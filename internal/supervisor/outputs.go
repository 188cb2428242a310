package supervisor

import (
	"context"
	"slices"
	"sync"

	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/runner/collect"
)

// Bounds of the output of ended calls that a session's runner has. The output of the last call stays in any case.
const (
	maxEndedMemory = 4 << 20
	maxEndedDisk   = 256 << 20
	maxEndedCalls  = 256
	// smallOutput is what a status keeps of a call in any case.
	smallOutput = 4 << 10
)

// Outputs has the streams of this runner's calls, and the files that were kept of them. The output of a call that has ended stays until
// that of all ended calls takes too much. Then the oldest goes.
type Outputs struct {
	mu    sync.Mutex
	calls map[string]*callOutput
	// ended are the calls that have ended, in the order of their ends, and what they take.
	ended        []*callOutput
	memory, disk int64
}

// NewOutputs returns an Outputs without calls.
func NewOutputs() *Outputs { return &Outputs{calls: map[string]*callOutput{}} }

// callOutput is the output of a call.
type callOutput struct {
	uid string
	// known is closed when the streams are there, or will never be, since the process wasn't started.
	known          chan struct{}
	once           sync.Once
	stdout, stderr kept.Output
	// files are what was collected; nil for nothing. They are set before the call ends.
	files        *collect.Files
	memory, disk int64
}

// begin says that a call comes, so that who asks for its output can wait for it.
func (o *Outputs) begin(uid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.calls[uid] == nil {
		o.calls[uid] = &callOutput{uid: uid, known: make(chan struct{})}
	}
}

// Set says what is kept of a call's streams. It owns them from now on.
func (o *Outputs) Set(uid string, stdout, stderr kept.Output) {
	o.mu.Lock()
	c := o.calls[uid]
	o.mu.Unlock()
	if c == nil {
		stdout.Drop()
		stderr.Drop()
		return
	}
	c.once.Do(func() {
		c.stdout, c.stderr = stdout, stderr
		close(c.known)
	})
}

// setFiles says which files are kept of a call, and whether the call is one that is known. It owns them then. A nil
// Outputs knows none.
func (o *Outputs) setFiles(uid string, files *collect.Files) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.calls[uid]
	if c == nil || c.files != nil {
		return false
	}
	c.files = files
	return true
}

// file returns a file that was kept of a call; nil when there is none of that path.
func (o *Outputs) file(uid, path string) output.Reader {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.calls[uid]; c != nil {
		return c.files.Open(path)
	}
	return nil
}

// end says that a call has ended.
func (o *Outputs) end(uid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.calls[uid]
	if c == nil {
		return
	}
	c.once.Do(func() { close(c.known) })
	if c.stdout == nil && c.files == nil {
		// It was never started. Its result says so.
		delete(o.calls, uid)
		return
	}
	c.disk = c.files.Size()
	for _, s := range c.streams() {
		memory, disk := s.Shrink()
		c.memory, c.disk = c.memory+memory, c.disk+disk
	}
	o.ended = append(o.ended, c)
	o.memory, o.disk = o.memory+c.memory, o.disk+c.disk
	o.drop(func() bool { return o.memory > maxEndedMemory }, func(c *callOutput) bool { return c.memory > 0 })
	o.drop(func() bool { return o.disk > maxEndedDisk }, func(c *callOutput) bool { return c.disk > 0 })
	areMany := func() bool { return len(o.ended) > maxEndedCalls }
	// What the status has all of isn't being stored.
	o.drop(areMany, func(c *callOutput) bool { return c.disk == 0 && c.memory <= smallOutput })
	o.drop(areMany, func(*callOutput) bool { return true })
}

// drop drops the oldest call that helps, but not the last one, as long as there is too much. It needs the lock.
func (o *Outputs) drop(isTooMuch func() bool, helps func(*callOutput) bool) {
	for isTooMuch() {
		at := slices.IndexFunc(o.ended[:len(o.ended)-1], helps)
		if at < 0 {
			return
		}
		c := o.ended[at]
		o.ended = slices.Delete(o.ended, at, at+1)
		o.memory, o.disk = o.memory-c.memory, o.disk-c.disk
		delete(o.calls, c.uid)
		c.files.Drop()
		for _, s := range c.streams() {
			s.Drop()
		}
	}
}

// streams are none of a process that isn't known to have started.
func (c *callOutput) streams() []kept.Output {
	if c.stdout == nil {
		return nil
	}
	return []kept.Output{c.stdout, c.stderr}
}

// get returns the output of a call; nil when it isn't there.
func (o *Outputs) get(uid string) *callOutput {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.calls[uid]
}

// stream returns a stream of the call. While the process isn't started, it waits if follow says so, and returns nil otherwise.
// It is output.ErrNotFound for a call whose process was never started.
func (c *callOutput) stream(ctx context.Context, name output.Stream, follow bool) (kept.Output, error) {
	select {
	case <-c.known:
	default:
		if !follow {
			return nil, nil
		}
		select {
		case <-c.known:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	switch {
	case c.stdout == nil:
		return nil, output.ErrNotFound
	case name == output.Stderr:
		return c.stderr, nil
	default:
		return c.stdout, nil
	}
}
