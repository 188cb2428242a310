package follow

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// observation is an observed state of an object, or the error after which there are no more.
type observation[T client.Object] struct {
	object T
	err    error
}

// observer watches one object.
type observer[T client.Object] struct {
	subject[T]
	client client.WithWatch
	key    types.NamespacedName
	// out receives the observations.
	out chan observation[T]
	// uid of the object, once known: another one with the same name is another object.
	uid types.UID
	// version is the last reported resource version: each watch starts with the current state.
	version string
	// broken receives an error after which the observer retries, others what else is done between two observations.
	broken chan error
	others chan func()
	// running are the goroutines that end before each returns.
	running sync.WaitGroup
}

func newObserver[T client.Object](of subject[T], c client.WithWatch, key types.NamespacedName) *observer[T] {
	return &observer[T]{subject: of, client: c, key: key, out: make(chan observation[T]), broken: make(chan error, 1), others: make(chan func())}
}

// each passes each state of the object on, until observe reports that it has seen enough.
func (o *observer[T]) each(ctx context.Context, broken func(error), observe func(context.Context, T) bool) (none T, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer o.running.Wait()
	defer cancel()
	o.running.Go(func() { o.run(ctx) })
	for {
		select {
		case <-ctx.Done():
			return none, ctx.Err()
		case err := <-o.broken:
			broken(err)
		case do := <-o.others:
			do()
		case seen := <-o.out:
			if seen.err != nil {
				return none, seen.err
			}
			if observe(ctx, seen.object) {
				return seen.object, ctx.Err()
			}
		}
	}
}

// failed passes on an error after which the observer retries, unless the one before was not received yet.
func (o *observer[T]) failed(err error) {
	select {
	case o.broken <- err:
	default:
	}
}

// run reports each state until the context ends, the object is deleted or can't be watched.
func (o *observer[T]) run(ctx context.Context) {
	retry := firstRetry
	for {
		progress, err := o.watch(ctx)
		if progress {
			retry = firstRetry
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && o.isFinal(err):
			o.report(ctx, observation[T]{err: err})
			return
		case err != nil:
			o.failed(err)
		case progress:
			continue
		}
		select {
		case <-ctx.Done():
			return
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

// observe reports a new state. The last state of a deleted object can be its end.
func (o *observer[T]) observe(ctx context.Context, object T) error {
	if o.uid != "" && object.GetUID() != o.uid {
		return o.deleted
	}
	o.uid = object.GetUID()
	if o.version == object.GetResourceVersion() {
		return nil
	}
	o.version = object.GetResourceVersion()
	o.report(ctx, observation[T]{object: object})
	return nil
}

func (o *observer[T]) report(ctx context.Context, seen observation[T]) {
	select {
	case o.out <- seen:
	case <-ctx.Done():
	}
}

// isFinal reports whether a retry can't help: the object is gone, or the user has no permission to read it.
func (o *observer[T]) isFinal(err error) bool {
	return errors.Is(err, o.deleted) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err) || NotInstalled(err)
}
