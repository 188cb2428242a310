package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

const (
	// watchSeconds bounds one watch, so that a dead connection is noticed.
	watchSeconds = 240
	// The delays between two watches grow from firstRetry to lastRetry.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// subject is a kind of object that an observer watches.
type subject[T client.Object] struct {
	// name of an object of the kind, in messages.
	name string
	// kind is its name in the API.
	kind string
	// existsHint says what to do about a name that is taken.
	existsHint string

	object func() T
	list   func() client.ObjectList
	// deleted means that the observed object is gone.
	deleted error
}

var callSubject = subject[*v1alpha1.ToolCall]{
	name: "call", kind: "ToolCall", deleted: ErrDeleted,
	existsHint: ", and a call with a given name runs at most once: choose another name, or inspect that call",
	object:     func() *v1alpha1.ToolCall { return &v1alpha1.ToolCall{} },
	list:       func() client.ObjectList { return &v1alpha1.ToolCallList{} },
}

var sessionSubject = subject[*v1alpha1.ToolSession]{
	name: "session", kind: "ToolSession", deleted: ErrSessionDeleted,
	existsHint: ": choose another name, or run calls in that session",
	object:     func() *v1alpha1.ToolSession { return &v1alpha1.ToolSession{} },
	list:       func() client.ObjectList { return &v1alpha1.ToolSessionList{} },
}

// observer watches one object.
type observer[T client.Object] struct {
	subject[T]
	client client.WithWatch
	key    types.NamespacedName
	// uid of the object, once known: another one with the same name is another object.
	uid types.UID
	// latest is the last observed state, and version its resource version: each watch starts with the current state.
	latest  T
	version string
	// seen receives each state once, and reports that it has seen enough.
	seen func(context.Context, T) bool
	// broken receives an error after which the observer retries.
	broken func(error)
}

// errEnough ends an observation whose latest state is the one that was waited for.
var errEnough = errors.New("enough was seen")

// run observes the object until enough was seen, and returns the latest state. It fails when the context ends, or when the object is
// deleted or can't be watched.
func (o *observer[T]) run(ctx context.Context) (none T, err error) {
	retry := firstRetry
	for {
		progress, err := o.watch(ctx)
		if progress {
			retry = firstRetry
		}
		switch {
		case errors.Is(err, errEnough):
			return o.latest, ctx.Err()
		case ctx.Err() != nil:
			return none, ctx.Err()
		case err == nil:
			// The server ended the watch in its time, or something between ends each at once: the pause is for the latter.
		case o.isFinal(err):
			return none, err
		default:
			o.broken(err)
		}
		select {
		case <-ctx.Done():
			return none, ctx.Err()
		case <-time.After(retry):
			retry = min(2*retry, lastRetry)
		}
	}
}

// watch runs one watch. A watch without a resourceVersion starts with the current object, if there is one. Only a read
// shows whether there is one; it follows the start of the watch, so that no change is lost between the two.
func (o *observer[T]) watch(ctx context.Context) (progress bool, err error) {
	w, err := o.client.Watch(ctx, o.list(), client.InNamespace(o.key.Namespace), &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, o.key.Name),
		Raw:           &metav1.ListOptions{TimeoutSeconds: ptr.To(int64(watchSeconds))},
	})
	if NotInstalled(err) {
		return false, notInstalled(o.kind, err)
	}
	if err != nil {
		return false, fmt.Errorf("watch %s %s: %w", o.name, o.key, err)
	}
	defer w.Stop()
	object := o.object()
	if err := o.client.Get(ctx, o.key, object); err != nil {
		return false, o.getError(err)
	}
	if err := o.observe(ctx, object); err != nil {
		return false, err
	}
	for event := range w.ResultChan() {
		if err := o.handle(ctx, event); err != nil {
			return true, err
		}
	}
	return true, nil
}

// getError tells the deletion of a known object from one that never existed.
func (o *observer[T]) getError(err error) error {
	if apierrors.IsNotFound(err) && o.uid != "" {
		return o.deleted
	}
	return fmt.Errorf("get %s %s: %w", o.name, o.key, err)
}

func (o *observer[T]) handle(ctx context.Context, event watch.Event) error {
	if event.Type == watch.Error {
		return fmt.Errorf("watch %s %s: %w", o.name, o.key, apierrors.FromObject(event.Object))
	}
	object, ok := event.Object.(T)
	if !ok || event.Type == watch.Bookmark {
		return nil
	}
	if err := o.observe(ctx, object); err != nil {
		return err
	}
	if event.Type == watch.Deleted {
		return o.deleted
	}
	return nil
}

// observe passes a new state on. The last state of a deleted object can be its end.
func (o *observer[T]) observe(ctx context.Context, object T) error {
	if o.uid != "" && object.GetUID() != o.uid {
		return o.deleted
	}
	o.uid = object.GetUID()
	if o.version == object.GetResourceVersion() {
		return nil
	}
	o.latest, o.version = object, object.GetResourceVersion()
	if o.seen(ctx, object) {
		return errEnough
	}
	return nil
}

// isFinal reports whether a retry can't help: the object is gone, or the user has no permission to read it.
func (o *observer[T]) isFinal(err error) bool {
	return errors.Is(err, o.deleted) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err) || NotInstalled(err)
}
