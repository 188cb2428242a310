package retention

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
)

// seedPause is how long to wait before the calls that ended earlier are asked for again.
const seedPause = 5 * time.Second

// Seed fills the schedule with the calls that ended before this replica became the leader. It is a manager.Runnable. Nothing
// waits for it: calls whose time is up stay a little longer, at most.
type Seed struct {
	Finished *Reconciler
	// Namespaces are those to look into; NamespaceAll for the whole cluster.
	Namespaces []string
}

// Start runs until it has succeeded or the context ends.
func (s *Seed) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, seedPause, true, func(ctx context.Context) (bool, error) {
		calls, err := s.Read(ctx)
		log := logf.FromContext(ctx).WithName("retention")
		switch {
		case err == nil:
			log.Info("Seeded the retention of finished calls", "calls", calls)
		case ctx.Err() == nil:
			log.Error(err, "Failed to list finished calls; retrying", "after", seedPause)
		}
		return err == nil, nil
	})
	return nil
}

// Read remembers when the finished calls that are there are to be deleted, and says how many they are.
func (s *Seed) Read(ctx context.Context) (seeded int, err error) {
	for _, namespace := range s.Namespaces {
		if err := s.read(ctx, namespace, &seeded); err != nil {
			return seeded, err
		}
	}
	return seeded, nil
}

// fieldTTL is empty for calls that don't say themselves how long they stay.
const fieldTTL = "spec.ttlSecondsAfterFinished"

// read reads the finished calls of a namespace that say themselves how long they stay. Of the others it reads metadata only, since they
// can be very many, and has them looked at when their time can be up at the earliest.
func (s *Seed) read(ctx context.Context, namespace string, seeded *int) error {
	add := func(o client.Object, due time.Time) {
		s.Finished.Schedule.Add(client.ObjectKeyFromObject(o), due)
		*seeded++
	}
	err := s.Finished.Objects.EachFinished(ctx, namespace, fields.OneTermNotEqualSelector(fieldTTL, ""), func(call *v1alpha1.ToolCall) {
		add(call, call.FinishedAt().Add(time.Duration(ptr.Deref(call.Spec.TTLSecondsAfterFinished, 0))*time.Second))
	})
	if err != nil {
		return err
	}
	ofSession := func(context.Context, string) (time.Duration, error) { return ttlSecondsOfSession * time.Second, nil }
	if err := s.readOthers(ctx, namespace, fields.OneTermNotEqualSelector(apicache.FieldSession, ""), ofSession, add); err != nil {
		return err
	}
	return s.readOthers(ctx, namespace, fields.OneTermEqualSelector(apicache.FieldSession, ""), s.Finished.shortestTTL, add)
}

// readOthers reads the finished calls that are selected and don't say themselves how long they stay. ttl is how long those of a namespace
// stay at least.
func (s *Seed) readOthers(ctx context.Context, namespace string, selected fields.Selector, ttl func(context.Context, string) (time.Duration, error), add func(client.Object, time.Time)) error {
	others := fields.AndSelectors(apicache.Finished(), fields.OneTermEqualSelector(fieldTTL, ""), selected)
	options := client.ListOptions{Namespace: namespace, FieldSelector: others}
	return apicache.EachPage(ctx, s.Finished.Objects.Live, "ToolCall", options, func(page *metav1.PartialObjectMetadataList) error {
		for i := range page.Items {
			least, err := ttl(ctx, page.Items[i].Namespace)
			if err != nil {
				return err
			}
			add(&page.Items[i], page.Items[i].CreationTimestamp.Add(least))
		}
		return nil
	})
}

// shortestTTL is how long a finished call of the namespace stays at least that doesn't say so itself.
func (r *Reconciler) shortestTTL(ctx context.Context, namespace string) (time.Duration, error) {
	seconds := int32(defaultTTLSeconds)
	environments := &v1alpha1.ExecutionEnvironmentList{}
	if err := r.Objects.List(ctx, environments, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list environments: %w", err)
	}
	for i := range environments.Items {
		seconds = min(seconds, ptr.Deref(environments.Items[i].Spec.TTLSecondsAfterFinished, seconds))
	}
	return time.Duration(seconds) * time.Second, nil
}
