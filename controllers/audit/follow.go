package audit

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/audit"
)

// kind is a kind of objects that records are about.
type kind struct {
	name string
	// ended selects those that have ended, or all where the API server can't.
	ended fields.Selector
	id    func(uid string) string
	// one and list are empty.
	one  client.Object
	list client.ObjectList
}

const kindCall = "ToolCall"

var kinds = []kind{
	{kindCall, apicache.Finished(), audit.CallID, &v1alpha1.ToolCall{}, &v1alpha1.ToolCallList{}},
	{"ToolSession", fields.Everything(), audit.SessionID, &v1alpha1.ToolSession{}, &v1alpha1.ToolSessionList{}},
	{"ToolCallApproval", fields.Everything(), audit.ApprovalID, &v1alpha1.ToolCallApproval{}, &v1alpha1.ToolCallApprovalList{}},
}

// recordOf is the record of an object that has ended or is gone; nil for another one.
func (a *Auditor) recordOf(ctx context.Context, o client.Object, isDeleted bool) *audit.Record {
	var r audit.Record
	switch o := o.(type) {
	case *v1alpha1.ToolCall:
		if !isDeleted && !o.Status.Phase.Terminal() {
			return nil
		}
		r = audit.OfCall(o, a.about(ctx, o.Namespace, o.Status.Environment, isDeleted, isVouched(a.Requesters.Vouched(ctx, o))))
	case *v1alpha1.ToolSession:
		if !isDeleted && o.Status.Phase != v1alpha1.SessionEnded {
			return nil
		}
		r = audit.OfSession(o, a.about(ctx, o.Namespace, o.Status.Environment, isDeleted, isVouched(a.Requesters.SessionVouched(ctx, o))))
	case *v1alpha1.ToolCallApproval:
		if !isDeleted && o.Status.Phase != v1alpha1.ApprovalAccepted && o.Status.Phase != v1alpha1.ApprovalRejected {
			return nil
		}
		r = audit.OfApproval(o, a.about(ctx, o.Namespace, nil, isDeleted, isVouched(a.Requesters.ApprovalVouched(ctx, o))))
	default:
		return nil
	}
	return &r
}

// isVouched says that admission vouches for whoever created an object, which isn't so while that can't be read.
func isVouched(is bool, _ string, err error) bool { return err == nil && is }

// follower follows the objects of a kind in a namespace.
type follower struct {
	*Auditor
	kind
	namespace string

	// What follows needs the Auditor's lock.

	// written are the records from before the first list, which are not needed after it.
	written audit.IDs
	// recorded are the objects that are there and have a record.
	recorded map[types.UID]struct{}
	// isWatching says that all that had ended was recorded, and that what ends is seen.
	isWatching bool
}

// follow records what has ended, and then what ends or is deleted, until the watch breaks off.
func (f *follower) follow(ctx context.Context) error {
	version, err := f.catchUp(ctx)
	if err != nil {
		return err
	}
	f.setWatching(true)
	defer f.setWatching(false)
	// It has no selector: what is deleted before its end is recorded, too.
	return apicache.Follow(ctx, f.Client, f.list, client.ListOptions{Namespace: f.namespace}, version, func(o client.Object, isDeleted bool) {
		f.look(ctx, o, isDeleted)
	})
}

func (f *follower) setWatching(is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isWatching = is
}

// catchUp records what ended while nobody watched. It reads the metadata of all, and the others of those without a record. It returns the
// version from which on nothing was missed.
func (f *follower) catchUp(ctx context.Context) (version string, err error) {
	there := map[types.UID]struct{}{}
	err = apicache.EachPage(ctx, f.Client, f.name, client.ListOptions{Namespace: f.namespace, FieldSelector: f.ended}, func(page *metav1.PartialObjectMetadataList) error {
		version = cmp.Or(version, page.ResourceVersion)
		for i := range page.Items {
			o := &page.Items[i]
			if err := f.readUnrecorded(ctx, o); err != nil {
				return err
			}
			if f.has(o.UID) {
				there[o.UID] = struct{}{}
			}
		}
		return nil
	})
	if err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.recorded, f.written = there, nil
	}
	return version, err
}

// readUnrecorded looks at an object that has no record.
func (f *follower) readUnrecorded(ctx context.Context, metadata *metav1.PartialObjectMetadata) error {
	if f.has(metadata.UID) {
		return nil
	}
	o := f.one.DeepCopyObject().(client.Object)
	if err := f.Client.Get(ctx, client.ObjectKeyFromObject(metadata), o); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read what has ended: %w", err)
	} else if err == nil {
		f.look(ctx, o, false)
	}
	return nil
}

func (f *follower) has(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, has := f.recorded[uid]; has {
		return true
	}
	return f.written.Has(f.id(string(uid)))
}

// look records an object if it has ended or is gone, once.
func (f *follower) look(ctx context.Context, o client.Object, isDeleted bool) {
	uid := o.GetUID()
	if !f.has(uid) {
		if r := f.recordOf(ctx, o, isDeleted); r != nil {
			f.Add(*r)
			f.mu.Lock()
			f.recorded[uid] = struct{}{}
			f.mu.Unlock()
		}
	}
	if isDeleted {
		f.mu.Lock()
		delete(f.recorded, uid)
		f.mu.Unlock()
	}
}
