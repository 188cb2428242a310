package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/test/internal/follow"
)

// marks are when something was seen first.
type marks struct {
	mu sync.Mutex
	at map[string]time.Time
}

func newMarks() *marks { return &marks{at: map[string]time.Time{}} }

func (m *marks) see(names []string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		if _, seen := m.at[name]; !seen {
			m.at[name] = now
		}
	}
}

// watched is one object on its way to its end. What it has is complete once ended is closed.
type watched struct {
	marks  *marks
	ended  chan struct{}
	object client.Object
	seen   time.Time
	err    error
}

// tracker watches all objects of one kind in one place, and tells their runs. One watch for all of them costs the
// API server the same for one object and for fifty.
type tracker struct {
	follower *follow.Follower
	done     func(client.Object) (bool, error)

	mu     sync.Mutex
	runs   map[string]*watched
	broken error
}

// track opens the watch. It is open before anything is created.
func (b *bed) track(ctx context.Context, s subject) (*tracker, error) {
	t := newTracker(s.done)
	var err error
	t.follower, err = follow.Start(ctx, b.client, s.list(), s.place.namespace, func(e watch.Event) { t.take(e, time.Now()) })
	if err != nil {
		return nil, err
	}
	go func() {
		<-t.follower.Done()
		t.abandon(t.follower.Err())
	}()
	return t, nil
}

func newTracker(done func(client.Object) (bool, error)) *tracker {
	return &tracker{done: done, runs: map[string]*watched{}}
}

func (t *tracker) stop() { t.follower.Stop() }

// expect has the object of that name followed, from before it is created.
func (t *tracker) expect(name string) *watched {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &watched{marks: newMarks(), ended: make(chan struct{})}
	if t.broken != nil {
		r.err = t.broken
		close(r.ended)
		return r
	}
	t.runs[name] = r
	return r
}

// abandon ends the runs that nothing will be seen of any more.
func (t *tracker) abandon(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken = fmt.Errorf("the watch ended before the end was seen: %w", cmp.Or(cause, context.Canceled))
	for name, r := range t.runs {
		t.finish(name, r, t.broken)
	}
}

func (t *tracker) take(event watch.Event, now time.Time) {
	object, ok := event.Object.(client.Object)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.runs[object.GetName()]
	if r == nil {
		return
	}
	r.marks.see(stagesOf(object), now)
	ended, err := t.done(object)
	if event.Type == watch.Deleted && !ended && err == nil {
		err = errors.New("it was deleted before its end")
	}
	if ended || err != nil {
		r.object, r.seen = object, now
		t.finish(object.GetName(), r, err)
	}
}

// finish needs the lock.
func (t *tracker) finish(name string, r *watched, err error) {
	r.err = err
	delete(t.runs, name)
	close(r.ended)
}

// await waits for the end.
func (r *watched) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-r.ended:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the end: %w", ctx.Err())
	}
}

// witness notes in the marks what is seen of other objects in a namespace, until stop is called.
func (b *bed) witness(ctx context.Context, list client.ObjectList, namespace string, m *marks) (stop func(), err error) {
	f, err := follow.Start(ctx, b.client, list, namespace, func(event watch.Event) {
		if object, ok := event.Object.(client.Object); ok {
			m.see(stagesOf(object), time.Now())
		}
	})
	if err != nil {
		return nil, err
	}
	return f.Stop, nil
}
