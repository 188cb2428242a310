// Package follow watches objects without missing any. The API server closes the watch of a client that doesn't keep
// up with a burst; whoever takes that for the end waits in vain for what happened meanwhile. Here a watch that is cut
// off goes on at once where it was, and only when that can't be done is there an error.
package follow

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Follower is a watch that is kept open.
type Follower struct {
	client  client.WithWatch
	list    client.ObjectList
	options []client.ListOption
	version string
	take    func(watch.Event)
	cancel  context.CancelFunc
	done    chan struct{}
	err     error
}

// Start follows the objects of a namespace from now on and gives each event to take, one at a time, until the context
// ends or Stop is called. The watch is open when Start returns.
func Start(ctx context.Context, c client.WithWatch, list client.ObjectList, namespace string, take func(watch.Event)) (*Follower, error) {
	now := list.DeepCopyObject().(client.ObjectList)
	if err := c.List(ctx, now, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return nil, fmt.Errorf("look where to watch %T from: %w", list, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &Follower{
		client: c, list: list, options: []client.ListOption{client.InNamespace(namespace)},
		version: now.GetResourceVersion(), take: take, cancel: cancel, done: make(chan struct{}),
	}
	w, err := f.open(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	go f.run(ctx, w)
	return f, nil
}

// Stop ends it and waits until nothing is given to take any more.
func (f *Follower) Stop() {
	f.cancel()
	<-f.done
}

// Done is closed at the end.
func (f *Follower) Done() <-chan struct{} { return f.done }

// Err says why the end came if nobody asked for it; nil before the end.
func (f *Follower) Err() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

func (f *Follower) open(ctx context.Context) (watch.Interface, error) {
	raw := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: f.version, AllowWatchBookmarks: true}}
	w, err := f.client.Watch(ctx, f.list.DeepCopyObject().(client.ObjectList), append(f.options, raw)...)
	if err != nil {
		return nil, fmt.Errorf("watch %T from version %s: %w", f.list, f.version, err)
	}
	return w, nil
}

func (f *Follower) run(ctx context.Context, w watch.Interface) {
	defer close(f.done)
	defer f.cancel()
	var err error
	for err == nil && ctx.Err() == nil {
		err = f.read(ctx, w)
		w.Stop()
		if err == nil && ctx.Err() == nil {
			w, err = f.open(ctx)
		}
	}
	if ctx.Err() == nil {
		f.err = err
	}
}

// read gives events away until the watch is cut off; the error says that it can't be taken up again.
func (f *Follower) read(ctx context.Context, w watch.Interface) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if event.Type == watch.Error {
				return fmt.Errorf("watch %T from version %s: %w", f.list, f.version, apierrors.FromObject(event.Object))
			}
			object, err := meta.Accessor(event.Object)
			if err != nil {
				return errors.Join(errors.New("the watch sent something without a version"), err)
			}
			f.version = object.GetResourceVersion()
			if event.Type != watch.Bookmark {
				f.take(event)
			}
		}
	}
}
