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
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/audit"
)

// kind is a kind of objects that records are about.
type kind struct {
	name string
	// ended selects those that have ended, or all where the API server can't.
	ended fields.Selector
	list  func() client.ObjectList
	one   func() client.Object
	id    func(uid string) string
	// record is the record of an object; isDue says that it has ended.
	record func(o client.Object, about audit.About) audit.Record
	isDue  func(o client.Object) bool
	// environment is what an object resolved.
	environment func(o client.Object) *v1alpha1.ResolvedEnvironment
	// vouched says whether admission checked who created an object.
	vouched func(ctx context.Context, by *access.Requesters, o client.Object) (bool, string, error)
}

var (
	calls = kind{
		name: "ToolCall", ended: apicache.Finished(), id: audit.CallID,
		list:        func() client.ObjectList { return &v1alpha1.ToolCallList{} },
		one:         func() client.Object { return &v1alpha1.ToolCall{} },
		isDue:       of(func(c *v1alpha1.ToolCall) bool { return c.Status.Phase.Terminal() }),
		environment: of(func(c *v1alpha1.ToolCall) *v1alpha1.ResolvedEnvironment { return c.Status.Environment }),
		vouched: func(ctx context.Context, by *access.Requesters, o client.Object) (bool, string, error) {
			return by.Vouched(ctx, o.(*v1alpha1.ToolCall))
		},
		record: func(o client.Object, about audit.About) audit.Record {
			return audit.OfCall(o.(*v1alpha1.ToolCall), about)
		},
	}
	sessions = kind{
		name: "ToolSession", ended: fields.Everything(), id: audit.SessionID,
		list:        func() client.ObjectList { return &v1alpha1.ToolSessionList{} },
		one:         func() client.Object { return &v1alpha1.ToolSession{} },
		isDue:       of(func(s *v1alpha1.ToolSession) bool { return s.Status.Phase == v1alpha1.SessionEnded }),
		environment: of(func(s *v1alpha1.ToolSession) *v1alpha1.ResolvedEnvironment { return s.Status.Environment }),
		vouched: func(ctx context.Context, by *access.Requesters, o client.Object) (bool, string, error) {
			return by.SessionVouched(ctx, o.(*v1alpha1.ToolSession))
		},
		record: func(o client.Object, about audit.About) audit.Record {
			return audit.OfSession(o.(*v1alpha1.ToolSession), about)
		},
	}
)

var decisions = kind{
	name: "ToolCallApproval", ended: fields.Everything(), id: audit.ApprovalID,
	list: func() client.ObjectList { return &v1alpha1.ToolCallApprovalList{} },
	one:  func() client.Object { return &v1alpha1.ToolCallApproval{} },
	isDue: of(func(d *v1alpha1.ToolCallApproval) bool {
		return d.Status.Phase == v1alpha1.ApprovalAccepted || d.Status.Phase == v1alpha1.ApprovalRejected
	}),
	environment: func(client.Object) *v1alpha1.ResolvedEnvironment { return nil },
	vouched: func(ctx context.Context, by *access.Requesters, o client.Object) (bool, string, error) {
		return by.ApprovalVouched(ctx, o.(*v1alpha1.ToolCallApproval))
	},
	record: func(o client.Object, about audit.About) audit.Record {
		return audit.OfApproval(o.(*v1alpha1.ToolCallApproval), about)
	},
}

// of adapts a function of one type.
func of[T client.Object, V any](value func(T) V) func(client.Object) V {
	return func(o client.Object) V { return value(o.(T)) }
}

// follower follows the objects of a kind in a namespace.
type follower struct {
	*Auditor
	kind
	namespace string
	// written are the records from before the first list, which are not needed after it.
	written audit.IDs
	// recorded are the objects that are there and have a record.
	recorded map[types.UID]struct{}
}

// follow records what has ended, and then what ends or is deleted, until the watch breaks off.
func (f *follower) follow(ctx context.Context) error {
	version, err := f.catchUp(ctx)
	if err != nil {
		return err
	}
	// It has no selector: what is deleted before its end is recorded, too.
	return apicache.Follow(ctx, f.Client, f.list(), client.ListOptions{Namespace: f.namespace}, version, func(o client.Object, isDeleted bool) {
		f.look(ctx, o, isDeleted)
	})
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
		f.recorded, f.written = there, nil
	}
	return version, err
}

// readUnrecorded looks at an object that has no record.
func (f *follower) readUnrecorded(ctx context.Context, metadata *metav1.PartialObjectMetadata) error {
	if f.has(metadata.UID) {
		return nil
	}
	o := f.one()
	if err := f.Client.Get(ctx, client.ObjectKeyFromObject(metadata), o); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read what has ended: %w", err)
	} else if err == nil {
		f.look(ctx, o, false)
	}
	return nil
}

func (f *follower) has(uid types.UID) bool {
	if _, has := f.recorded[uid]; has {
		return true
	}
	return f.written.Has(f.id(string(uid)))
}

// vouches says whether admission checked who created an object, which isn't so while that can't be read.
func (f *follower) vouches(ctx context.Context, o client.Object) bool {
	if f.Requesters == nil {
		return false
	}
	vouched, _, err := f.vouched(ctx, f.Requesters, o)
	return err == nil && vouched
}

// look records an object if it has ended or is gone, once.
func (f *follower) look(ctx context.Context, o client.Object, isDeleted bool) {
	uid := o.GetUID()
	if (f.isDue(o) || isDeleted) && !f.has(uid) {
		about := f.about(ctx, o.GetNamespace(), f.environment(o))
		about.IsDeleted, about.IsVouched = isDeleted, f.vouches(ctx, o)
		f.Add(f.record(o, about))
		if f.recorded == nil {
			f.recorded = map[types.UID]struct{}{}
		}
		f.recorded[uid] = struct{}{}
	}
	if isDeleted {
		delete(f.recorded, uid)
	}
}
