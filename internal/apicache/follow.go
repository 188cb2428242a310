package apicache

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// maxMetadata bounds the objects whose metadata are in memory at a time.
const maxMetadata = 500

// EachPage reads the metadata of objects of a kind past the cache, a page at a time. Of a list that takes so long that it expires, the later
// pages have a later version.
func EachPage(ctx context.Context, api client.Reader, kind string, o client.ListOptions, take func(*metav1.PartialObjectMetadataList) error) error {
	o.Limit = maxMetadata
	for {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
		err := api.List(ctx, page, &o)
		if next := afterExpired(err); next != "" && next != o.Continue {
			o.Continue = next
			continue
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", kind, err)
		}
		if err := take(page); err != nil {
			return err
		}
		if o.Continue = page.Continue; o.Continue == "" {
			return nil
		}
	}
}

// Follow has changes of objects seen past the cache, from a version of their list on, until the watch breaks off.
func Follow(ctx context.Context, api client.WithWatch, list client.ObjectList, o client.ListOptions, version string, see func(o client.Object, isDeleted bool)) error {
	watching, err := watchtools.NewRetryWatcherWithContext(ctx, version, &toolscache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			o := o
			o.Raw = &raw
			return api.Watch(ctx, list, &o)
		},
	})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer watching.Stop()
	for event := range watching.ResultChan() {
		if object, is := event.Object.(client.Object); is && event.Type != watch.Bookmark && event.Type != watch.Error {
			see(object, event.Type == watch.Deleted)
		}
	}
	return errors.Join(errors.New("the watch broke off"), ctx.Err())
}
