package output

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/metrics"
)

const (
	// firstSweep is when a new leader removes what has no call, and sweepPause how often that is done.
	firstSweep = 10 * time.Minute
	sweepPause = time.Hour
	// carePause is how long to wait before the API server is asked again.
	carePause = 5 * time.Second
	// namesAtOnce is how many calls' metadata are in memory at a time.
	namesAtOnce = 500
)

// fieldOutputState is the field that the API server selects calls by which have output in the store.
const fieldOutputState = "status.outputState"

// OutputCare has the output of calls removed that are gone, and calls looked at whose output an operator before this one was
// storing. It is a manager.Runnable for the leader. It reads metadata, of calls that have output in the store: others cost
// nothing.
type OutputCare struct {
	// Outputs has the store; nil without one: the controller then records that what was being stored is lost.
	Outputs *Outputs
	// Look has a call looked at by this package's controller.
	Look func(types.NamespacedName)
	// Client watches and lists; its cache is not used.
	Client client.WithWatch
	// Namespaces are those to look into; empty for the whole cluster.
	Namespaces []string
	Clock      clock.PassiveClock
	Log        logr.Logger
}

// Start runs until the context ends.
func (c *OutputCare) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for _, namespace := range c.namespaces() {
		running.Go(func() {
			wait.UntilWithContext(ctx, func(ctx context.Context) {
				if err := c.follow(ctx, namespace); err != nil && ctx.Err() == nil {
					c.Log.Error(err, "Failed to watch the calls that have stored output; retrying", "after", carePause)
				}
			}, carePause)
		})
	}
	if c.Outputs == nil {
		return nil
	}
	timer := time.NewTimer(firstSweep)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			c.sweep(ctx)
			timer.Reset(sweepPause)
		}
	}
}

func (c *OutputCare) namespaces() []string {
	if len(c.Namespaces) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return c.Namespaces
}

// follow has calls looked at which are storing, and the output removed of those that are deleted, until the watch breaks off.
func (c *OutputCare) follow(ctx context.Context, namespace string) error {
	version := ""
	err := c.list(ctx, namespace, fields.OneTermEqualSelector(fieldOutputState, string(v1alpha1.OutputStoring)), func(page *metav1.PartialObjectMetadataList) {
		if version == "" {
			// Deletions during the list are seen, too.
			version = page.ResourceVersion
		}
		for i := range page.Items {
			c.Look(client.ObjectKeyFromObject(&page.Items[i]))
		}
	})
	if err != nil {
		return err
	}
	if c.Outputs == nil {
		<-ctx.Done()
		return nil
	}
	selected := &selectedCalls{client: c.Client, namespace: namespace, selector: fields.OneTermNotEqualSelector(fieldOutputState, "")}
	watching, err := watchtools.NewRetryWatcherWithContext(ctx, version, selected)
	if err != nil {
		return fmt.Errorf("watch the calls that have stored output: %w", err)
	}
	defer watching.Stop()
	for event := range watching.ResultChan() {
		if call, ok := event.Object.(*metav1.PartialObjectMetadata); ok && event.Type == watch.Deleted {
			c.Outputs.Remove(call.UID)
		}
	}
	return errors.Join(errors.New("the watch of the calls that have stored output broke off"), ctx.Err())
}

// selectedCalls are the metadata of some calls.
type selectedCalls struct {
	client    client.WithWatch
	namespace string
	selector  fields.Selector
}

// WatchWithContext implements cache.WatcherWithContext.
func (s *selectedCalls) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return s.client.Watch(ctx, newMetadataList(), &client.ListOptions{Namespace: s.namespace, FieldSelector: s.selector, Raw: &o})
}

func newMetadataList() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolCallList"))
	return list
}

// list reads the metadata of calls, a page at a time.
func (c *OutputCare) list(ctx context.Context, namespace string, selector fields.Selector, take func(*metav1.PartialObjectMetadataList)) error {
	for next := ""; ; {
		page := newMetadataList()
		err := c.Client.List(ctx, page, &client.ListOptions{Namespace: namespace, FieldSelector: selector, Limit: namesAtOnce, Continue: next})
		if err != nil {
			return fmt.Errorf("list calls: %w", err)
		}
		take(page)
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

// sweep removes what is stored of calls that aren't there.
func (c *OutputCare) sweep(ctx context.Context) {
	removed, err := c.Sweep(ctx)
	if err != nil && ctx.Err() == nil {
		metrics.CountStoreError(metrics.StoreSweep)
		c.Log.Error(err, "Failed to remove all output that has no call")
	}
	if removed > 0 {
		c.Log.Info("Removed output that had no call", "calls", removed)
	}
}

// Sweep removes what is stored, for longer than an hour, of calls that aren't there, and says of how many.
func (c *OutputCare) Sweep(ctx context.Context) (removed int, err error) {
	known := c.Clock.Now()
	// Hashes take less memory than UIDs. Two calls with the same one have the output of one of them stay for another hour.
	seed, alive := maphash.MakeSeed(), map[uint64]struct{}{}
	for _, namespace := range c.namespaces() {
		err := c.list(ctx, namespace, fields.Everything(), func(page *metav1.PartialObjectMetadataList) {
			for i := range page.Items {
				alive[maphash.String(seed, string(page.Items[i].UID))] = struct{}{}
			}
		})
		if err != nil {
			return 0, err
		}
	}
	return c.Outputs.store.Sweep(ctx, known, func(uid types.UID) bool {
		_, is := alive[maphash.String(seed, string(uid))]
		return is
	})
}
