package controllers_test

import (
	"context"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
)

// rough is an operator's client in bad times: writes fail, their answers are lost, or they arrive late, and the cache of calls
// and sessions is behind.
type rough struct {
	client.Client
	// fate is what happens to the next write; arrivesLate is one of its answers besides those of failure.
	fate func() failure
	// late are the writes that will arrive.
	late   []func()
	writes int
	// calls and sessions are what the cache shows while it is behind; nil while it isn't.
	calls    map[types.NamespacedName]*v1alpha1.ToolCall
	sessions map[types.NamespacedName]*v1alpha1.ToolSession
}

const arrivesLate = failures

// write does what do does, at once or late. sees says that what is read next has to show it.
func (r *rough) write(o client.Object, sees bool, do func() error) error {
	switch r.fate() {
	case conflicts:
		return apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "x", errLost)
	case timesOut:
		return apierrors.NewTimeoutError("injected", 0)
	case arrivesLate:
		r.late = append(r.late, func() { _ = do() })
		return errLost
	case answerIsLost:
		if err := do(); err != nil {
			return err
		}
		r.writes++
		return errLost
	}
	r.writes++
	err := do()
	if err == nil && sees {
		r.catchUp(o)
	}
	return err
}

// catchUp has the cache of a kind show what there is.
func (r *rough) catchUp(o client.Object) {
	switch o.(type) {
	case *v1alpha1.ToolCall:
		r.calls = nil
	case *v1alpha1.ToolSession:
		r.sessions = nil
	}
}

// fallBehind has the cache go on to show what there is now.
func (r *rough) fallBehind(namespace string) error {
	calls, sessions := &v1alpha1.ToolCallList{}, &v1alpha1.ToolSessionList{}
	if err := r.Client.List(context.Background(), calls, client.InNamespace(namespace)); err != nil {
		return err
	}
	if err := r.Client.List(context.Background(), sessions, client.InNamespace(namespace)); err != nil {
		return err
	}
	r.calls, r.sessions = map[types.NamespacedName]*v1alpha1.ToolCall{}, map[types.NamespacedName]*v1alpha1.ToolSession{}
	for i := range calls.Items {
		r.calls[client.ObjectKeyFromObject(&calls.Items[i])] = &calls.Items[i]
	}
	for i := range sessions.Items {
		r.sessions[client.ObjectKeyFromObject(&sessions.Items[i])] = &sessions.Items[i]
	}
	return nil
}

// Get implements client.Reader.
func (r *rough) Get(ctx context.Context, key types.NamespacedName, o client.Object, opts ...client.GetOption) error {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, key.Name)
	switch o := o.(type) {
	case *v1alpha1.ToolCall:
		if r.calls == nil {
			break
		}
		if r.calls[key] == nil {
			return notFound
		}
		r.calls[key].DeepCopyInto(o)
		return nil
	case *v1alpha1.ToolSession:
		if r.sessions == nil {
			break
		}
		if r.sessions[key] == nil {
			return notFound
		}
		r.sessions[key].DeepCopyInto(o)
		return nil
	}
	return r.Client.Get(ctx, key, o, opts...)
}

// List implements client.Reader.
func (r *rough) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	switch list := list.(type) {
	case *v1alpha1.ToolCallList:
		if r.calls == nil {
			break
		}
		for _, call := range r.calls {
			if isListed(o, call, map[string]string{apicache.IndexInFlight: "true", apicache.IndexCallJob: call.Status.Job, apicache.IndexCallSession: call.Spec.SessionRef.Name}) {
				list.Items = append(list.Items, *call.DeepCopy())
			}
		}
		return nil
	case *v1alpha1.ToolSessionList:
		if r.sessions == nil {
			break
		}
		for _, s := range r.sessions {
			if isListed(o, s, map[string]string{apicache.IndexSessionJob: s.Status.Job}) {
				list.Items = append(list.Items, *s.DeepCopy())
			}
		}
		return nil
	}
	return r.Client.List(ctx, list, opts...)
}

func isListed(o *client.ListOptions, object client.Object, index map[string]string) bool {
	if o.Namespace != "" && o.Namespace != object.GetNamespace() {
		return false
	}
	if o.FieldSelector == nil {
		return true
	}
	for _, field := range o.FieldSelector.Requirements() {
		if index[field.Field] != field.Value {
			return false
		}
	}
	return true
}

// Create implements client.Writer.
func (r *rough) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return r.write(o, true, func() error { return r.Client.Create(ctx, o, opts...) })
}

// Delete implements client.Writer.
func (r *rough) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return r.write(o, !isUnseen(opts), func() error { return r.Client.Delete(ctx, o, opts...) })
}

// Patch implements client.Writer.
func (r *rough) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	p, err := asItIsNow(o, p)
	if err != nil {
		return err
	}
	return r.write(o, !isUnseen(opts), func() error { return r.Client.Patch(ctx, o, p, opts...) })
}

// asItIsNow is a patch that what becomes of the object doesn't change.
func asItIsNow(o client.Object, p client.Patch) (client.Patch, error) {
	data, err := p.Data(o)
	return client.RawPatch(p.Type(), data), err
}

func isUnseen[T any](opts []T) bool {
	for _, o := range opts {
		if reflect.DeepEqual(any(o), any(client.DisableReadYourWritesConsistency)) {
			return true
		}
	}
	return false
}

// Status implements client.Client.
func (r *rough) Status() client.SubResourceWriter {
	return &roughStatus{SubResourceWriter: r.Client.Status(), rough: r}
}

type roughStatus struct {
	client.SubResourceWriter
	rough *rough
}

// Patch implements client.SubResourceWriter.
func (s *roughStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	p, err := asItIsNow(o, p)
	if err != nil {
		return err
	}
	return s.rough.write(o, !isUnseen(opts), func() error { return s.SubResourceWriter.Patch(ctx, o, p, opts...) })
}
