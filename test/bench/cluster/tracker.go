package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/test/internal/follow"
)

// Done says that an object has ended as it should; the error, that it ended otherwise.
type Done func(client.Object) (bool, error)

// Tracker watches the objects of one kind in one namespace, and tells who waits for one of its end. One watch for all
// of them costs the API server the same for one object and for fifty.
type Tracker struct {
	client   client.Client
	done     Done
	follower *follow.Follower

	mu      sync.Mutex
	waiting map[string]*waiting
}

// waiting is for one object's end, or for why it can't be seen.
type waiting struct {
	object client.Object
	ended  chan error
}

// Track opens the watch, which is open before anything is created.
func Track(ctx context.Context, c client.WithWatch, namespace string, list client.ObjectList, done Done) (*Tracker, error) {
	t := &Tracker{client: c, done: done, waiting: map[string]*waiting{}}
	var err error
	t.follower, err = follow.Start(ctx, c, list, namespace, t.take)
	return t, err
}

// Stop ends the watch, and says why it had ended before.
func (t *Tracker) Stop() error { return t.follower.Stop() }

// Run creates an object, waits until its end is seen, and returns it as it was then.
func (t *Tracker) Run(ctx context.Context, o client.Object) (client.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	name := o.GetName()
	w := t.expect(name)
	if err := t.client.Create(ctx, o); err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	select {
	case err := <-w.ended:
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return w.object, nil
	case <-t.follower.Done():
		return nil, fmt.Errorf("the watch ended before the end of %s was seen: %w", name, cmp.Or(t.Stop(), context.Canceled))
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the end of %s: %w", name, ctx.Err())
	}
}

// expect has the object of that name followed, from before it is created.
func (t *Tracker) expect(name string) *waiting {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &waiting{ended: make(chan error, 1)}
	t.waiting[name] = w
	return w
}

func (t *Tracker) take(event watch.Event) {
	object, ok := event.Object.(client.Object)
	if !ok {
		return
	}
	done, err := t.done(object)
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
	w.object = object
	w.ended <- err
}
