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
	f := &follower{clients: c, watcher: w, delivered: map[output.Stream]int64{}, noticed: map[string]bool{}}
	ctx, cancel := context.WithCancel(ctx)
	defer f.readers.Wait()
	defer cancel()
	o := &observer[*v1alpha1.ToolCall]{subject: callSubject, client: c.Calls, key: key, uid: w.UID, seen: f.observe, broken: f.broken}
	return o.run(ctx)
}

// follower is the state of one Wait.
type follower struct {
	clients Clients
	watcher Watcher
	// readers read the streams while the call runs.
	readers sync.WaitGroup
	// stopReading ends the readers. It is nil while there are none. Only the goroutine of Wait uses it.
	stopReading context.CancelFunc

	// mu keeps what the goroutine of Wait passes to the watcher apart from what the readers do.
	mu sync.Mutex
	// delivered is the offset of each stream's next byte.
	delivered map[output.Stream]int64
	// noticed holds the keys of earlier notices.
	noticed map[string]bool
}

func (f *follower) broken(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notice("watch", "the watch of the call failed, retrying: "+err.Error())
}

// observe passes a state on, and reports whether it is the last one. When the call has finished, it delivers the rest of
// the output first.
func (f *follower) observe(ctx context.Context, call *v1alpha1.ToolCall) (last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
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
		f.readers.Go(func() { f.readLive(ctx, query) })
	}
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
	f.noticed[key] = true
	f.watcher.Notice(text)
}

// SessionWatcher receives what happens to a session, in order. Only Until is required.
type SessionWatcher struct {
	// Until receives each observed state of the session, and ends the wait at the first for which it returns true.
	Until func(session *v1alpha1.ToolSession) bool

	// Notice receives a sentence for people about a watch that failed and is retried.
	Notice func(text string)
}

// WaitSession follows a session until the watcher has seen enough, and returns the session. Another session of the same
// name is not the same session. It restarts broken watches. The error wraps ErrSessionDeleted if the session is deleted,
// and the context's error if that ends first.
func (c Clients) WaitSession(ctx context.Context, session *v1alpha1.ToolSession, w SessionWatcher) (*v1alpha1.ToolSession, error) {
	noticed := false
	o := &observer[*v1alpha1.ToolSession]{
		subject: sessionSubject, client: c.Calls, key: types.NamespacedName{Namespace: session.Namespace, Name: session.Name}, uid: session.UID,
		seen: func(_ context.Context, session *v1alpha1.ToolSession) bool { return w.Until(session) },
		broken: func(err error) {
			if w.Notice != nil && !noticed {
				w.Notice("the watch of the session failed, retrying: " + err.Error())
				noticed = true
			}
		},
	}
	return o.run(ctx)
}
