package output

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/metrics"
)

const (
	// firstSweep is when a new leader removes what has no call, and sweepPause how often that is done.
	firstSweep = 10 * time.Minute
	sweepPause = time.Hour
	// carePause is how long to wait before the API server is asked again.
	carePause = 5 * time.Second
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
	// Namespaces are those to look into; NamespaceAll for the whole cluster.
	Namespaces []string
	Clock      clock.PassiveClock
	Log        logr.Logger
}

// Start runs until the context ends.
func (c *OutputCare) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for _, namespace := range c.Namespaces {
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
	select {
	case <-ctx.Done():
	case <-time.After(firstSweep):
		wait.UntilWithContext(ctx, c.sweep, sweepPause)
	}
	return nil
}

// follow has calls looked at which are storing, and the output removed of those that are deleted, until the watch breaks off.
func (c *OutputCare) follow(ctx context.Context, namespace string) error {
	version := ""
	storing := client.ListOptions{Namespace: namespace, FieldSelector: fields.OneTermEqualSelector(fieldOutputState, string(v1alpha1.OutputStoring))}
	err := apicache.EachPage(ctx, c.Client, "ToolCall", storing, func(page *metav1.PartialObjectMetadataList) error {
		// Deletions during the list are seen, too.
		version = cmp.Or(version, page.ResourceVersion)
		for i := range page.Items {
			c.Look(client.ObjectKeyFromObject(&page.Items[i]))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if c.Outputs == nil {
		<-ctx.Done()
		return nil
	}
	calls := &metav1.PartialObjectMetadataList{}
	calls.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolCallList"))
	stored := client.ListOptions{Namespace: namespace, FieldSelector: fields.OneTermNotEqualSelector(fieldOutputState, "")}
	return apicache.Follow(ctx, c.Client, calls, stored, version, func(call client.Object, isDeleted bool) {
		if isDeleted {
			c.Outputs.Remove(call.GetUID())
		}
	})
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
	alive := sets.New[types.UID]()
	for _, namespace := range c.Namespaces {
		err := apicache.EachPage(ctx, c.Client, "ToolCall", client.ListOptions{Namespace: namespace}, func(page *metav1.PartialObjectMetadataList) error {
			for i := range page.Items {
				alive.Insert(page.Items[i].UID)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return c.Outputs.store.Sweep(ctx, known, alive.Has)
}
