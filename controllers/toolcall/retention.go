package toolcall

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
)

// seedPause is how long to wait before the calls that ended earlier are asked for again.
const seedPause = 5 * time.Second

// RetentionSeed fills the expiry with the calls that ended before this replica became the leader. It is a
// manager.Runnable. Nothing waits for it: calls whose time is up stay a little longer, at most.
type RetentionSeed struct {
	Calls *Reconciler
	// Client watches; its cache is not used.
	Client client.WithWatch
	// Namespaces are those to look into; empty for the whole cluster.
	Namespaces []string
}

// Start runs until it has succeeded or the context ends.
func (s *RetentionSeed) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, seedPause, true, func(ctx context.Context) (bool, error) {
		calls, err := s.Seed(ctx)
		log := logf.FromContext(ctx).WithName("retention")
		switch {
		case err == nil:
			log.Info("Know which calls ended before", "calls", calls)
		case ctx.Err() == nil:
			log.Error(err, "Can't see yet which calls ended before; asking again", "after", seedPause)
		}
		return err == nil, nil
	})
	return nil
}

// Seed remembers when the finished calls that are there are to be deleted, and says how many they are.
func (s *RetentionSeed) Seed(ctx context.Context) (seeded int, err error) {
	namespaces := s.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		n, err := s.seed(ctx, namespace)
		seeded += n
		if err != nil {
			return seeded, err
		}
	}
	return seeded, nil
}

// seed reads metadata only: a page of whole calls could be hundreds of MiB of output. When a call ended follows from the
// last write of its status; how long it stays is asked when that could be over at the earliest.
func (s *RetentionSeed) seed(ctx context.Context, namespace string) (seeded int, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolCallList"))
	watching, err := s.Client.Watch(ctx, list, &client.ListOptions{
		Namespace: namespace, FieldSelector: apicache.Finished(),
		Raw: &metav1.ListOptions{
			SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		},
	})
	if err != nil {
		return 0, fmt.Errorf("watch the calls that have ended: %w", err)
	}
	defer watching.Stop()
	for event := range watching.ResultChan() {
		switch o := event.Object.(type) {
		case *metav1.Status:
			return seeded, fmt.Errorf("watch the calls that have ended: %w", apierrors.FromObject(o))
		case *metav1.PartialObjectMetadata:
			if o.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
				return seeded, nil
			}
			s.Calls.Expiry.Add(client.ObjectKeyFromObject(o), lastWrite(o).Add(s.Calls.shortestTTL(ctx, o.Namespace)))
			seeded++
		}
	}
	return seeded, errors.Join(errors.New("the watch of the calls that have ended broke off"), ctx.Err())
}

// lastWrite is when a finished call's status was written.
func lastWrite(o *metav1.PartialObjectMetadata) time.Time {
	last := o.CreationTimestamp.Time
	for _, entry := range o.ManagedFields {
		if entry.Subresource == "status" && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// shortestTTL is when a finished call of the namespace could be over at the earliest, unless it asks for less itself:
// such a call stays for that long after a change of leader.
func (r *Reconciler) shortestTTL(ctx context.Context, namespace string) time.Duration {
	seconds := int32(defaultTTLSeconds)
	environments := &v1alpha1.ExecutionEnvironmentList{}
	if err := r.Objects.List(ctx, environments, client.InNamespace(namespace)); err != nil {
		return 0
	}
	for i := range environments.Items {
		seconds = min(seconds, ptr.Deref(environments.Items[i].Spec.TTLSecondsAfterFinished, seconds))
	}
	return time.Duration(seconds) * time.Second
}
