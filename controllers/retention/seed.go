package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// Client watches; its cache is not used.
	Client client.WithWatch
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
		for _, of := range []finishedOf{callsWithTTL, callsOfSessions, otherCalls} {
			n, err := s.seed(ctx, namespace, of)
			seeded += n
			if err != nil {
				return seeded, err
			}
		}
	}
	return seeded, nil
}

// fieldTTL is empty for calls that don't say themselves how long they stay.
const fieldTTL = "spec.ttlSecondsAfterFinished"

// finishedOf is a part of the finished calls.
type finishedOf int

const (
	callsWithTTL finishedOf = iota
	callsOfSessions
	otherCalls
)

// seed reads the finished calls, one by one: a page of them could be hundreds of MiB of output. Of those that don't say
// themselves how long they stay it reads metadata only, and looks at them when their time can be up at the earliest.
func (s *Seed) seed(ctx context.Context, namespace string, of finishedOf) (seeded int, err error) {
	var list client.ObjectList = &v1alpha1.ToolCallList{}
	selector := fields.AndSelectors(apicache.Finished(), fields.OneTermNotEqualSelector(fieldTTL, ""))
	if of != callsWithTTL {
		metadata := &metav1.PartialObjectMetadataList{}
		metadata.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolCallList"))
		inSession := fields.OneTermEqualSelector(apicache.FieldSession, "")
		if of == callsOfSessions {
			inSession = fields.OneTermNotEqualSelector(apicache.FieldSession, "")
		}
		list, selector = metadata, fields.AndSelectors(apicache.Finished(), fields.OneTermEqualSelector(fieldTTL, ""), inSession)
	}
	watching, err := s.Client.Watch(ctx, list, &client.ListOptions{
		Namespace: namespace, FieldSelector: selector,
		Raw: &metav1.ListOptions{
			SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		},
	})
	if err != nil {
		return 0, fmt.Errorf("watch the calls that have ended: %w", err)
	}
	defer watching.Stop()
	for event := range watching.ResultChan() {
		if status, failed := event.Object.(*metav1.Status); failed {
			return seeded, fmt.Errorf("watch the calls that have ended: %w", apierrors.FromObject(status))
		}
		o, ok := event.Object.(client.Object)
		if !ok {
			continue
		}
		if o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			return seeded, nil
		}
		due, err := s.dueTime(ctx, o, of)
		if err != nil {
			return seeded, err
		}
		s.Finished.Schedule.Add(client.ObjectKeyFromObject(o), due)
		seeded++
	}
	return seeded, errors.Join(errors.New("the watch of the calls that have ended broke off"), ctx.Err())
}

// dueTime is when a finished call is to be looked at.
func (s *Seed) dueTime(ctx context.Context, o client.Object, of finishedOf) (time.Time, error) {
	if call, whole := o.(*v1alpha1.ToolCall); whole {
		ttl, err := s.Finished.ttl(ctx, call)
		return call.FinishedAt().Add(ttl), err
	}
	if of == callsOfSessions {
		return o.GetCreationTimestamp().Add(ttlSecondsOfSession * time.Second), nil
	}
	ttl, err := s.Finished.shortestTTL(ctx, o.GetNamespace())
	return o.GetCreationTimestamp().Add(ttl), err
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
