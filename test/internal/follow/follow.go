// Package follow watches objects without missing any, and gives each event to a function. The API server closes the watch of a client
// that doesn't keep up with a burst: client-go's RetryWatcher then goes on where it was.
package follow

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Follower is a watch that is kept open.
type Follower struct {
	watcher *toolswatch.RetryWatcher
	done    chan struct{}
	err     error
}

// Start follows the objects of a namespace from now on and gives each event to take, one at a time, until the context
// ends or Stop is called.
func Start(ctx context.Context, c client.WithWatch, list client.ObjectList, namespace string, take func(watch.Event)) (*Follower, error) {
	now := list.DeepCopyObject().(client.ObjectList)
	if err := c.List(ctx, now, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return nil, fmt.Errorf("look where to watch %T from: %w", list, err)
	}
	open := func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		return c.Watch(ctx, list.DeepCopyObject().(client.ObjectList), client.InNamespace(namespace), &client.ListOptions{Raw: &options})
	}
	watcher, err := toolswatch.NewRetryWatcherWithContext(ctx, now.GetResourceVersion(), &cache.ListWatch{WatchFuncWithContext: open})
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", list, err)
	}
	f := &Follower{watcher: watcher, done: make(chan struct{})}
	go f.run(take)
	return f, nil
}

func (f *Follower) run(take func(watch.Event)) {
	defer close(f.done)
	for event := range f.watcher.ResultChan() {
		if event.Type == watch.Error {
			f.err = fmt.Errorf("the watch can't go on: %w", apierrors.FromObject(event.Object))
			continue
		}
		take(event)
	}
}

// Stop ends it, waits until nothing is given to take any more, and says why the end came if nobody asked for it.
func (f *Follower) Stop() error {
	f.watcher.Stop()
	<-f.done
	return f.err
}

// Done is closed at the end.
func (f *Follower) Done() <-chan struct{} { return f.done }
