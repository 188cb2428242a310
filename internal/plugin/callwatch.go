package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// watchPause is how long to wait before a watch is begun again.
const watchPause = time.Second

// errTooOld says that the API server doesn't have what happened since a resource version any more.
var errTooOld = errors.New("the watch is too far behind")

// watchCalls passes on each call that is added or changed after a resource version, as a table or as an object, until show
// fails or the context ends. A watch that ends is begun again where it was; errTooOld says that it can't. notice receives why
// nothing comes, once in each interruption.
func (c *cluster) watchCalls(ctx context.Context, q callQuery, from string, show func(runtime.Object) error, notice func(error)) error {
	q.options.Watch, q.options.Limit, q.options.Continue = true, 0, ""
	q.options.AllowWatchBookmarks = true
	isNoticed := false
	for {
		q.options.ResourceVersion = from
		watching, err := c.request(&q).Watch(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsGone(err) || apierrors.IsResourceExpired(err):
			return errTooOld
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			return c.readError("watch calls", err)
		case err != nil && !isNoticed:
			notice(err)
			isNoticed = true
		case err == nil:
			isNoticed = false
			from, err = passEvents(watching, from, show)
			watching.Stop()
			if err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(watchPause):
		}
	}
}

// passEvents passes the events of one watch on, and returns the last resource version.
func passEvents(watching watch.Interface, from string, show func(runtime.Object) error) (string, error) {
	for event := range watching.ResultChan() {
		if event.Type == watch.Error {
			if err := apierrors.FromObject(event.Object); apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
				return from, errTooOld
			}
			return from, nil // The next watch says whether it lasts.
		}
		version := resourceVersionOf(event.Object)
		if table, ok := event.Object.(*metav1.Table); ok {
			if err := decodeRows(table); err != nil {
				return from, fmt.Errorf("watch calls: %w", err)
			}
			if version == "" && len(table.Rows) > 0 {
				version = rowCall(&table.Rows[0]).ResourceVersion
			}
		}
		from = orText(version, from)
		if event.Type != watch.Added && event.Type != watch.Modified {
			continue
		}
		if err := show(event.Object); err != nil {
			return from, err
		}
	}
	return from, nil
}
