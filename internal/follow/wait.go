package follow

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/client"
)

// Wait follows a call until its condition Finished is True or the watcher has seen enough of it, and returns the call. It
// restarts broken watches. The error wraps ErrDeleted if the call is deleted, and the context's error if that ends first.
func (c Clients) Wait(ctx context.Context, key types.NamespacedName, w Watcher) (*v1alpha1.ToolCall, error) {
	o := newObserver(callSubject, c.Calls, key)
	o.uid = w.UID
	f := &follower{clients: c, watcher: w, others: o.others, running: &o.running, delivered: map[output.Stream]int64{}}
	return o.each(ctx, func(err error) { f.notice("watch", "the watch of the call failed, retrying: "+err.Error()) }, f.observe)
}

// follower is the state of one Wait. Only the goroutine of Wait uses it.
type follower struct {
	clients Clients
	watcher Watcher
	// others carries what the readers have to that goroutine; running are the readers.
	others  chan<- func()
	running *sync.WaitGroup
	// stopReading ends the reading of output. It is nil while none is read.
	stopReading context.CancelFunc
	// delivered is the offset of each stream's next byte.
	delivered map[output.Stream]int64
	// noticed holds the keys of earlier notices.
	noticed map[string]bool
}

// observe passes a state on, and reports whether it is the last one. When the call has finished, it delivers the rest of
// the output first.
func (f *follower) observe(ctx context.Context, call *v1alpha1.ToolCall) (last bool) {
	if !Finished(call) {
		if f.watcher.Changed != nil {
			f.watcher.Changed(call)
		}
		if f.watcher.Until != nil && f.watcher.Until(call) {
			return true
		}
		f.startReading(ctx, call)
		return false
	}
	if f.stopReading != nil {
		f.stopReading()
	}
	f.deliverRemainder(ctx, call)
	if f.watcher.Changed != nil {
		f.watcher.Changed(call)
	}
	return true
}

// startReading starts to read the output once the command runs.
func (f *follower) startReading(ctx context.Context, call *v1alpha1.ToolCall) {
	if f.stopReading != nil || f.clients.Output == nil || f.watcher.Output == nil || f.watcher.AtEnd ||
		call.Status.Phase != v1alpha1.PhaseRunning {
		return
	}
	ctx, f.stopReading = context.WithCancel(ctx)
	for _, stream := range []output.Stream{output.Stdout, output.Stderr} {
		query := client.Query{Namespace: call.Namespace, Name: call.Name, UID: call.UID, Stream: stream, Follow: true}
		f.running.Go(func() { f.readLive(ctx, query) })
	}
}

// receive delivers a piece of a stream.
func (f *follower) receive(c chunk) {
	if c.notice != "" {
		f.notice(c.key, c.notice)
	}
	f.delivered[c.stream] = max(f.delivered[c.stream]+int64(len(c.data)), c.next)
	f.send(c.stream, c.data)
}

// send passes output to the function that receives its stream.
func (f *follower) send(stream output.Stream, data []byte) {
	switch {
	case len(data) == 0:
	case stream == output.Stderr && f.watcher.Errors != nil:
		f.watcher.Errors(data)
	case f.watcher.Output != nil:
		f.watcher.Output(data)
	}
}

// notice passes a notice on, once for each key.
func (f *follower) notice(key, text string) {
	if f.watcher.Notice == nil || f.noticed[key] {
		return
	}
	if f.noticed == nil {
		f.noticed = map[string]bool{}
	}
	f.noticed[key] = true
	f.watcher.Notice(text)
}
