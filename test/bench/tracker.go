package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	watcher watch.Interface
	done    func(client.Object) (bool, error)

	mu     sync.Mutex
	runs   map[string]*watched
	broken error
}

// track opens the watch. It is open before anything is created.
func (b *bed) track(ctx context.Context, s subject) (*tracker, error) {
	watcher, err := b.client.Watch(ctx, s.list(), client.InNamespace(s.place.namespace))
	if err != nil {
		return nil, fmt.Errorf("open the watch: %w", err)
	}
	t := &tracker{watcher: watcher, done: s.done, runs: map[string]*watched{}}
	go t.read()
	return t, nil
}

func (t *tracker) stop() { t.watcher.Stop() }

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

func (t *tracker) read() {
	for event := range t.watcher.ResultChan() {
		t.take(event, time.Now())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken = errors.New("the watch broke before the end was seen")
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

// follow notes in the marks what is seen of other objects in a namespace, until stop is called.
func (b *bed) follow(ctx context.Context, list client.ObjectList, namespace string, m *marks) (stop func(), err error) {
	watcher, err := b.client.Watch(ctx, list, client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("open a watch: %w", err)
	}
	go func() {
		for event := range watcher.ResultChan() {
			if object, ok := event.Object.(client.Object); ok {
				m.see(stagesOf(object), time.Now())
			}
		}
	}()
	return watcher.Stop, nil
}
