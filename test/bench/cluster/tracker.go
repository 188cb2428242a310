package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/internal/follow"
)

// Sample is one object from its creation to the sight of its end.
type Sample struct {
	// Created is just before the create request, Returned just after it.
	Created, Returned, Ended time.Time
	// Object is as it was at its end.
	Object client.Object
}

// Seconds from just before the create request to the end seen on the watch.
func (s *Sample) Seconds() float64 { return s.Ended.Sub(s.Created).Seconds() }

// Path is, of a call, whether it had a waiting pod.
func (s *Sample) Path() v1alpha1.Path {
	if call, ok := s.Object.(*v1alpha1.ToolCall); ok && call.Status.Timings != nil {
		return call.Status.Timings.Path
	}
	return ""
}

// Tracker watches the objects of one kind in one namespace, and tells who waits for one of its end. One watch for all
// of them costs the API server the same for one object and for fifty.
type Tracker struct {
	client   client.Client
	subject  Subject
	seen     func(client.Object, time.Time)
	follower *follow.Follower

	mu      sync.Mutex
	waiting map[string]*waiting
}

// waiting is for one object's end, or for why it can't be seen.
type waiting struct {
	sample *Sample
	ended  chan error
}

// Track opens the watch, which is open before anything is created. seen, if there is one, is told of every object and
// change that the watch shows.
func Track(ctx context.Context, c client.WithWatch, s Subject, seen func(client.Object, time.Time)) (*Tracker, error) {
	t := &Tracker{client: c, subject: s, seen: seen, waiting: map[string]*waiting{}}
	var err error
	t.follower, err = follow.Start(ctx, c, s.List, s.Namespace, func(e watch.Event) { t.take(e, time.Now()) })
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Stop ends the watch.
func (t *Tracker) Stop() { t.follower.Stop() }

// Measure creates the object of that name and waits until its end is seen.
func (t *Tracker) Measure(ctx context.Context, name string) (*Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w := t.expect(name)
	w.sample.Created = time.Now()
	if err := t.client.Create(ctx, t.subject.Make(name)); err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	w.sample.Returned = time.Now()
	select {
	case err := <-w.ended:
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return w.sample, nil
	case <-t.follower.Done():
		return nil, fmt.Errorf("the watch ended before the end of %s was seen: %w", name, cmp.Or(t.follower.Err(), context.Canceled))
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the end of %s: %w", name, ctx.Err())
	}
}

// expect has the object of that name followed, from before it is created.
func (t *Tracker) expect(name string) *waiting {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &waiting{sample: &Sample{}, ended: make(chan error, 1)}
	t.waiting[name] = w
	return w
}

func (t *Tracker) take(event watch.Event, now time.Time) {
	object, ok := event.Object.(client.Object)
	if !ok {
		return
	}
	if t.seen != nil {
		t.seen(object, now)
	}
	done, err := t.subject.Done(object)
	if event.Type == watch.Deleted && !done && err == nil {
		err = errors.New("it was deleted before its end")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.waiting[object.GetName()]
	if w == nil || !done && err == nil {
		return
	}
	delete(t.waiting, object.GetName())
	w.sample.Object, w.sample.Ended = object, now
	w.ended <- err
}

// Answer is the other client of a floor: it does one thing to each new object of a namespace, as soon as it sees it.
// What is left of a controller then is the API server: nothing that a controller does can be faster. stop says what
// failed first.
func Answer(ctx context.Context, c client.WithWatch, s Subject, answer func(context.Context, client.Object) error) (stop func() error, err error) {
	var answering errgroup.Group
	f, err := follow.Start(ctx, c, s.List, s.Namespace, func(event watch.Event) {
		if object, ok := event.Object.(client.Object); ok && event.Type == watch.Added {
			answering.Go(func() error { return answer(ctx, object) })
		}
	})
	if err != nil {
		return nil, err
	}
	return func() error {
		f.Stop()
		return answering.Wait()
	}, nil
}
