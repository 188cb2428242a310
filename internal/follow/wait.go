package follow

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
)

// Wait follows a call until it is finished (condition Finished) and returns it as it then is. It survives
// broken watches. The error wraps ErrDeleted when the call is deleted meanwhile, and the context's own when
// that ends.
func (c Clients) Wait(ctx context.Context, key types.NamespacedName, w Watcher) (*v1alpha1.ToolCall, error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	states := make(chan observation)
	broken := make(chan error, 1)
	o := &observer{calls: c.Calls, key: key, out: states, failed: func(err error) {
		select {
		case broken <- err:
		default:
		}
	}}
	running.Go(func() { o.run(ctx) })
	f := &follower{clients: c, watcher: w, chunks: make(chan chunk), running: &running}
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case err := <-broken:
			f.once("watch", "the connection to the API server is lost and tried again: "+err.Error())
		case got := <-f.chunks:
			f.output(got)
		case seen := <-states:
			if seen.err != nil {
				return nil, seen.err
			}
			if f.changed(ctx, seen.call) {
				return seen.call, ctx.Err()
			}
		}
	}
}

// follower is one Wait: it hands on what comes in. Only Wait's goroutine touches it.
type follower struct {
	clients Clients
	watcher Watcher
	chunks  chan chunk
	running *sync.WaitGroup
	// stop ends the reading of logs; nil when they aren't read.
	stop context.CancelFunc
	// told is what was told of each log; index is a logKind.
	told [3]telling
	// noticed are the notices that were given.
	noticed map[string]bool
}

// changed tells of a state and, at the end, of the output that is missing.
func (f *follower) changed(ctx context.Context, call *v1alpha1.ToolCall) (finished bool) {
	if !Finished(call) {
		if f.watcher.Changed != nil {
			f.watcher.Changed(call)
		}
		f.listen(ctx, call)
		return false
	}
	if f.stop != nil {
		f.stop()
	}
	f.complete(ctx, call)
	if f.watcher.Changed != nil {
		f.watcher.Changed(call)
	}
	return true
}

// listen begins to read the log once it is known which pod runs the call.
func (f *follower) listen(ctx context.Context, call *v1alpha1.ToolCall) {
	if f.stop != nil || f.clients.Pods == nil || f.watcher.Output == nil || f.watcher.Late ||
		call.Status.Phase != v1alpha1.PhaseRunning || call.Status.Pod == "" {
		return
	}
	ctx, f.stop = context.WithCancel(ctx)
	r := &logReader{
		pods: f.clients.Pods.Pods(call.Namespace), pod: call.Status.Pod, out: f.chunks, running: f.running,
		split: f.watcher.Errors != nil, mixed: !f.watcher.Apart || f.watcher.Errors == nil,
	}
	f.running.Go(func() { r.run(ctx) })
}

// output hands on a piece of a log.
func (f *follower) output(c chunk) {
	if c.notice != "" {
		f.once(c.notice, c.notice)
		return
	}
	f.told[c.kind].add(c.data)
	f.send(c.kind, c.data)
}

func (f *follower) send(kind logKind, data []byte) {
	switch {
	case len(data) == 0:
	case kind == logErrors && f.watcher.Errors != nil:
		f.watcher.Errors(data)
	case f.watcher.Output != nil:
		f.watcher.Output(data)
	}
}

// once gives a notice that wasn't given before.
func (f *follower) once(key, text string) {
	if f.watcher.Notice == nil || f.noticed[key] {
		return
	}
	if f.noticed == nil {
		f.noticed = map[string]bool{}
	}
	f.noticed[key] = true
	f.watcher.Notice(text)
}
