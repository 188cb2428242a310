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

// observation is an observed state of a call, or the error after which there are no more.
type observation struct {
	call *v1alpha1.ToolCall
	err  error
}

// observer watches one call.
type observer struct {
	calls client.WithWatch
	key   types.NamespacedName
	out   chan<- observation
	// uid of the call, once observed: another object with the same name is another call.
	uid types.UID
	// version is the last reported resource version: each watch starts with the current state.
	version string
	// failed receives the errors after which the observer retries.
	failed func(error)
}

// run reports each state until the context ends, the call is deleted or can't be watched.
func (o *observer) run(ctx context.Context) {
	retry := firstRetry
	for {
		progress, err := o.watch(ctx)
		if progress {
			retry = firstRetry
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && isFinal(err):
			o.report(ctx, observation{err: err})
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
func (o *observer) watch(ctx context.Context) (progress bool, err error) {
	w, err := o.calls.Watch(ctx, &v1alpha1.ToolCallList{}, client.InNamespace(o.key.Namespace), &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, o.key.Name),
		Raw:           &metav1.ListOptions{TimeoutSeconds: ptr.To(int64(watchSeconds))},
	})
	if NotInstalled(err) {
		return false, notInstalled(err)
	}
	if err != nil {
		return false, fmt.Errorf("watch call %s: %w", o.key, err)
	}
	defer w.Stop()
	call := &v1alpha1.ToolCall{}
	if err := o.calls.Get(ctx, o.key, call); err != nil {
		return false, o.getError(err)
	}
	if err := o.observe(ctx, call); err != nil {
		return false, err
	}
	for event := range w.ResultChan() {
		if err := o.handle(ctx, event); err != nil {
			return true, err
		}
	}
	return true, nil
}

// getError tells the deletion of an observed call from a call that never existed.
func (o *observer) getError(err error) error {
	if apierrors.IsNotFound(err) && o.uid != "" {
		return ErrDeleted
	}
	return fmt.Errorf("get call %s: %w", o.key, err)
}

func (o *observer) handle(ctx context.Context, event watch.Event) error {
	if event.Type == watch.Error {
		return fmt.Errorf("watch call %s: %w", o.key, apierrors.FromObject(event.Object))
	}
	call, ok := event.Object.(*v1alpha1.ToolCall)
	if !ok || event.Type == watch.Bookmark {
		return nil
	}
	if err := o.observe(ctx, call); err != nil {
		return err
	}
	if event.Type == watch.Deleted {
		return ErrDeleted
	}
	return nil
}

// observe reports a new state. The last state of a deleted call can be its end.
func (o *observer) observe(ctx context.Context, call *v1alpha1.ToolCall) error {
	if o.uid != "" && call.UID != o.uid {
		return ErrDeleted
	}
	o.uid = call.UID
	if o.version == call.ResourceVersion {
		return nil
	}
	o.version = call.ResourceVersion
	o.report(ctx, observation{call: call})
	return nil
}

func (o *observer) report(ctx context.Context, seen observation) {
	select {
	case o.out <- seen:
	case <-ctx.Done():
	}
}

// isFinal reports whether a retry can't help: the call is gone, or the user has no permission to read it.
func isFinal(err error) bool {
	return errors.Is(err, ErrDeleted) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err) || NotInstalled(err)
}
