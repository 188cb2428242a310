package output

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/fair"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/output/store"
)

const (
	// GrowthPause is how often the runner of a call that runs is asked how much its process has written. A call that ends sooner isn't
	// asked about.
	GrowthPause = 5 * time.Second
	// questionTime bounds each of these questions.
	questionTime = 5 * time.Second
	// maxStoring is how many streams are stored at the same time, and maxStoringOfNamespace how many of one namespace. Each takes up to
	// 64 KiB, and keeps its pod while its call has ended; more wait.
	maxStoring            = 4096
	maxStoringOfNamespace = maxStoring / 4
)

var errNoStore = errors.New("the operator has no output store")

// Outputs has the streams of calls stored that are more than the status of a call keeps: their parts while the command runs,
// the rest when it has ended. Nothing in it is the only copy: after a restart calls that run are watched again, and those that
// have ended and whose status says Storing are read from their runners again. A nil one stores nothing.
type Outputs struct {
	store *store.Store
	hub   *dispatch.Hub
	wake  func(types.NamespacedName)
	log   logr.Logger
	pause time.Duration
	// removals are the calls whose output is to be removed.
	removals *removals

	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	// places bounds the streams that are being stored.
	places *fair.Counter[string]

	mu    sync.Mutex
	calls map[types.NamespacedName]*keptCall
}

// NewOutputs makes one that stores until Close, which comes before that of the store. pause is GrowthPause, but in tests. wake has a call
// looked at whose stream is stored or lost.
func NewOutputs(kept *store.Store, hub *dispatch.Hub, pause time.Duration, wake func(types.NamespacedName), log logr.Logger) *Outputs {
	ctx, stop := context.WithCancel(context.Background())
	return &Outputs{
		pause: pause, store: kept, hub: hub, wake: wake, log: log, removals: newRemovals(kept, log),
		ctx: ctx, stop: stop, calls: map[types.NamespacedName]*keptCall{}, places: fair.NewCounter[string](maxStoring, maxStoringOfNamespace),
	}
}

// Close ends all that it does, and waits for that.
func (o *Outputs) Close() {
	if o == nil {
		return
	}
	o.mu.Lock()
	o.stop()
	o.mu.Unlock()
	o.removals.close()
	o.running.Wait()
}

// Watch has the streams of a call stored from when they exceed what the status keeps. Calling it again changes nothing.
func (o *Outputs) Watch(of Of) {
	if o == nil || !of.isKept() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.calls[of.Call]; c != nil && c.UID == of.UID || o.ctx.Err() != nil {
		return
	}
	c := o.enter(of)
	ctx, stop := context.WithCancel(o.ctx)
	c.stopWatching = stop
	o.running.Go(func() { o.watchGrowth(ctx, c) })
}

// enter takes a call in. One of the same name that was there before is gone. It needs the lock.
func (o *Outputs) enter(of Of) *keptCall {
	if c := o.calls[of.Call]; c != nil {
		o.leave(c)
	}
	c := &keptCall{Of: of, streams: map[output.Key]*keptStream{}, stopWatching: func() {}}
	o.calls[of.Call] = c
	return c
}

// watchGrowth asks the runner how much the process has written.
func (o *Outputs) watchGrowth(ctx context.Context, c *keptCall) {
	tick := time.NewTicker(o.pause)
	defer tick.Stop()
	left := map[output.Stream]bool{output.Stdout: true, output.Stderr: true}
	for len(left) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for stream := range left {
			if !o.hasGrown(ctx, c, stream) {
				continue
			}
			o.mu.Lock()
			if o.calls[c.Call] != c || o.start(c, c.key(stream)) {
				delete(left, stream)
			}
			o.mu.Unlock()
		}
	}
}

func (o *Outputs) hasGrown(ctx context.Context, c *keptCall, stream output.Stream) bool {
	ctx, cancel := context.WithTimeout(ctx, questionTime)
	defer cancel()
	source := newRunnerStream(o.hub, c.key(stream), c.KeyHash)
	defer source.Close()
	r, err := source.open(ctx)
	return err == nil && r.Info().Bytes > c.StatusBytes
}

// start begins to store a stream, once. It is false when there is no place for it now. It needs the lock.
func (o *Outputs) start(c *keptCall, key output.Key) bool {
	if c.streams[key] != nil {
		return true
	}
	if o.ctx.Err() != nil {
		return false
	}
	place, ok := o.places.Acquire(1, c.Call.Namespace)
	if !ok {
		return false
	}
	s := &keptStream{}
	c.streams[key] = s
	s.source = newRunnerStream(o.hub, key, c.KeyHash)
	ctx, cancel := context.WithCancel(o.ctx)
	s.cancel = cancel
	if s.writer, s.err = o.store.Keep(ctx, key, s.source, c.limit(key)); s.err != nil {
		place.Release()
		cancel()
		return true
	}
	o.running.Go(func() {
		<-s.writer.Done()
		cancel()
		if status := s.writer.Status(); status.State == store.Lost {
			o.log.Error(status.Err, "Lost output", "call", c.Call, "stream", key.Stream, "artifact", key.Artifact, "kept", status.Kept)
		}
		place.Release()
		o.wake(c.Call)
	})
	return true
}

// Finish goes on with streams and artifacts whose process has ended, and says how far each is stored and since when the call's
// result is known. Calling it again changes nothing. isGone says that the call's pod is gone: what wasn't read by now can't be
// read any more, and an operator before this one may have stored it.
func (o *Outputs) Finish(of Of, keys []output.Key, now time.Time, isGone bool) (states map[output.Key]store.Status, since time.Time) {
	states = map[output.Key]store.Status{}
	if o == nil {
		for _, key := range keys {
			states[key] = store.Status{State: store.Lost, Err: errNoStore}
		}
		return states, now
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.calls[of.Call]
	if c == nil || c.UID != of.UID {
		c = o.enter(of)
	}
	c.stopWatching()
	if c.reported.IsZero() {
		c.reported = now
		c.forgetLost()
	}
	for _, key := range keys {
		if !o.start(c, key) {
			states[key] = store.Status{State: store.Storing}
			continue
		}
		s := c.streams[key]
		s.finish(isGone)
		states[key] = s.status()
		if err := states[key].Err; err != nil && states[key].State == store.Storing && !s.isTold {
			s.isTold = true
			o.log.Info("Failed to store output; retrying", "call", c.Call, "stream", key.Stream, "artifact", key.Artifact, "reason", err.Error())
		}
	}
	return states, c.reported
}

// Release forgets a call whose status says the last about its output.
func (o *Outputs) Release(call types.NamespacedName, uid types.UID) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.calls[call]
	if c == nil || c.UID != uid {
		return
	}
	c.stopWatching()
	delete(o.calls, call)
	for _, s := range c.streams {
		// Nobody asked for what isn't stored by now, or it took too long. What is stored can be read.
		s.finish(true)
	}
}

// ForgetOthers ends what is kept of calls of a name that are gone, all but the one with a UID, and removes what is stored of
// them.
func (o *Outputs) ForgetOthers(call types.NamespacedName, except types.UID) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.calls[call]; c != nil && c.UID != except {
		o.leave(c)
	}
}

// leave takes a call out that is gone, ends its writers, and has removed what they stored. It needs the lock.
func (o *Outputs) leave(c *keptCall) {
	c.stopWatching()
	delete(o.calls, c.Call)
	for _, s := range c.streams {
		s.cancel()
	}
	if len(c.streams) > 0 {
		o.removals.add(c.UID)
	}
}

// Remove removes what is stored of a call that is gone, sooner or later.
func (o *Outputs) Remove(uid types.UID) { o.removals.add(uid) }

// Storing is how many streams are being stored.
func (o *Outputs) Storing() int { return int(o.places.Used()) }
