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
	// watchSeconds is when a watch is begun anew, so that a connection that died in silence is noticed.
	watchSeconds = 240
	// The waits between two tries to watch.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// observation is one thing that was seen of a call: its state, or why nothing more will be seen.
type observation struct {
	call *v1alpha1.ToolCall
	err  error
}

// observer watches one call.
type observer struct {
	calls client.WithWatch
	key   types.NamespacedName
	out   chan<- observation
	// uid of the call once it was seen: another of the same name is another call.
	uid types.UID
	// version that was told last, since a watch begins with what is there.
	version string
	// failed is told of errors after which the watch is tried again.
	failed func(error)
}

// run tells of each state until the context ends, the call is gone or can't be watched.
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
		case err != nil && final(err):
			o.tell(ctx, observation{err: err})
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

// watch runs one watch. One without a resourceVersion begins with the object as it is; whether it is there at
// all only a read tells, and that comes after the watch has begun so that nothing falls between the two.
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
		return false, o.missing(err)
	}
	if err := o.saw(ctx, call); err != nil {
		return false, err
	}
	for event := range w.ResultChan() {
		if err := o.event(ctx, event); err != nil {
			return true, err
		}
	}
	return true, nil
}

func (o *observer) missing(err error) error {
	if apierrors.IsNotFound(err) && o.uid != "" {
		return ErrDeleted
	}
	return fmt.Errorf("get call %s: %w", o.key, err)
}

func (o *observer) event(ctx context.Context, event watch.Event) error {
	if event.Type == watch.Error {
		return fmt.Errorf("watch call %s: %w", o.key, apierrors.FromObject(event.Object))
	}
	call, ok := event.Object.(*v1alpha1.ToolCall)
	if !ok || event.Type == watch.Bookmark {
		return nil
	}
	if err := o.saw(ctx, call); err != nil {
		return err
	}
	if event.Type == watch.Deleted {
		return ErrDeleted
	}
	return nil
}

// saw tells of a state that wasn't told. The last state of a deleted call may be its end.
func (o *observer) saw(ctx context.Context, call *v1alpha1.ToolCall) error {
	if o.uid != "" && call.UID != o.uid {
		return ErrDeleted
	}
	o.uid = call.UID
	if o.version == call.ResourceVersion {
		return nil
	}
	o.version = call.ResourceVersion
	o.tell(ctx, observation{call: call})
	return nil
}

func (o *observer) tell(ctx context.Context, seen observation) {
	select {
	case o.out <- seen:
	case <-ctx.Done():
	}
}

// final says whether trying again is of no use: the call is gone, or the caller may not see it.
func final(err error) bool {
	return errors.Is(err, ErrDeleted) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err) || NotInstalled(err)
}
